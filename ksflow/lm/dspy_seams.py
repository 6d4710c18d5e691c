"""What is used of DSPy beyond `dspy` and `dspy.lm15`, whose names are documented: all of it, each with its reason.

A release that moves one of these breaks this file and no other; its test names every one that is gone.
"""

# What an error body says beside its message is gone once lm15 has read it: Gemini's delay, the words of other shapes.
# Answers are kept on disk as JSON, without `dspy.cache`, which is everybody's.
from dspy._vendor.lm15.serde import request_to_dict as request_to_dict
from dspy._vendor.lm15.serde import response_from_dict as response_from_dict
from dspy._vendor.lm15.serde import response_to_dict as response_to_dict
from dspy._vendor.lm15.transports import StdlibTransport as StdlibTransport

# `dspy.LM` counts tokens and prices answers of its own engines alone, and after the call: a budget asks before it.
from dspy.clients.call_result import usage_dict as usage_dict
from dspy.clients.costs import estimate_cost as estimate_cost

# `dspy.LM(engine="litellm")` streams to asynchronous code alone.
from dspy.clients.engines import LiteLLMEngine as LiteLLMEngine

# The price list before a call, and its version for the record.
from dspy.clients.model_metadata import model_info as model_info
from dspy.clients.model_metadata import source_info as source_info
