"""From a question to what a stage makes of a model's answer.

In: a stage's signature and inputs, and a `Model` as it is configured. Out: parsed values, and a record of every call.
`program` asks, `adapter` and `sections` lay questions out and parse answers, `model` is a model as it is configured,
`client` one as a `dspy.LM`, `call` the model call on one page, `connection` reaches a provider, `dspy_seams` has what
DSPy does not document; `engines`, `inbox` and `replay` stand in for one; `compiled` reads and writes compiled prompts.
What a prompt says is `prompts`'s.

The stages that ask models and `optimize` import it. It judges nothing and keeps nothing: where calls are recorded and
by whom they are metered says the call context (`ksflow.protocols`). Importing this package does not import dspy.
"""

from ksflow.lm.model import Model

__all__ = ["Model"]
