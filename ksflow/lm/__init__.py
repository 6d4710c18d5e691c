"""What the llm variants of the stages share: the model, the adapter, the bounded retries, stand-ins for a provider.

Importing this package does not import dspy.
"""

from ksflow.lm.model import Model

__all__ = ["Model"]
