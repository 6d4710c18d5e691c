"""Why there is no answer, in one sentence each."""

import re
from json import JSONDecodeError
from typing import Any

import dspy
from dspy import lm15

from ksflow.errors import BudgetError, ConfigError, KsflowError, StageError
from ksflow.lm.lengths import concerns_length, refuses_allowance, shorten_prompts
from ksflow.lm.model import Model
from ksflow.redaction import redact

LATE = "answered after the deadline"  # of a call whose answer nobody waited for; what it cost is true
FILTERED = "the provider's safety filter refused"
_KINDS: tuple[type[KsflowError], ...] = (ConfigError, BudgetError)  # are kept with their kind in front
_FILTER_CODES = {
    *("content_filter", "content_policy_violation"),  # OpenAI, Azure
    *("promptFeedback", "inband_finish_reason"),  # Gemini: what lm15 calls it
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
}
_KEY = re.compile(r"API.?key not valid|(invalid|incorrect).API.?key|API_KEY_INVALID", re.IGNORECASE)
_PLACE = re.compile(
    r"location is not supported|unsupported_country|(country|region|territory),?( or \w+)? (is )?not supported"
    r"|not (available|supported) in your (country|region|location)",
    re.IGNORECASE,
)
_BILL = re.compile(r"billing|quota|credit|\bpa(id|y)", re.IGNORECASE)
_TRANSIENT: tuple[tuple[type[dspy.LMError], str], ...] = (
    (dspy.LMRateLimitError, "is still over its rate limit after the retries"),
    (dspy.LMTimeoutError, "did not answer in time"),
    (dspy.LMTransportError, "lost the connection"),
)
_UNUSABLE = dspy.LMBillingError | dspy.LMUnsupportedModelError | dspy.LMConfigurationError
_UNUSABLE |= dspy.LMUnsupportedFeatureError
NEVER_CONNECTED = ("ConnectError", "ConnectTimeout")  # of lm15 and httpx, when nothing was sent


class Filtered(StageError):
    """A safety filter kept the answer back. Another try may fare better."""


def serialize_error(error: KsflowError) -> str:
    """Return an error as text for the record; `failure` is the way back."""
    if isinstance(error, StageError):
        return error.reason
    return "".join(f"{kind.__name__}: " for kind in _KINDS if isinstance(error, kind)) + str(error)


def failure(stage: str, error: str) -> KsflowError:
    """Return the exception that `serialize_error` recorded as this text."""
    for plain in _KINDS:
        if error.startswith(f"{plain.__name__}: "):
            return plain(error.partition(": ")[2])
    kind = Filtered if error.startswith(FILTERED) else StageError
    return kind(stage, error)


def classify_error(error: Exception) -> tuple[Exception, bool]:
    """Return an engine's error as DSPy and retries take it, and whether the provider may charge for the try."""
    if isinstance(error, lm15.StreamAssemblyError | JSONDecodeError):
        return lm15.TransportError(f"the answer broke off: {error}"), True
    if isinstance(error, lm15.TransportError):
        silent = caused_by(error, "ReadTimeout")
        meant = lm15.TimeoutError("the connection was silent for longer than timeout_s") if silent else error
        return meant, not caused_by(error, *NEVER_CONNECTED)
    if isinstance(error, lm15.ProviderError) and type(error) is lm15.ProviderError and (error.status or 400) < 400:
        return lm15.ServerError(error.message, status=error.status, provider=error.provider), True
    return error, isinstance(error, lm15.TimeoutError)


def refusal(error: dspy.LMError, stage: str, model: Model, tokens_in: int, began: float) -> KsflowError:
    """Return why a question that began at that moment has no answer: a ConfigError if no retry can help."""
    if isinstance(error.__cause__, KsflowError):
        return error.__cause__
    words = redact(" ".join(str(error.message).partition("To fix:")[0].split()))[:500] or "nothing"
    if sentence := _user_mends(error, model.key or "the configuration"):
        return ConfigError(f"{model.model} {sentence}: {words}")
    if isinstance(error, dspy.LMInvalidRequestError) and (why := _of_length(error, model, (tokens_in, began), words)):
        return why if isinstance(why, ConfigError) else StageError(stage, why)
    coded = isinstance(error, dspy.LMInvalidRequestError) and error.provider_code in _FILTER_CODES
    if coded or caused_by(error, "ContentPolicyViolationError"):
        return Filtered(stage, f"{FILTERED} the question: {words}")
    if caused_by(error, *NEVER_CONNECTED):
        return StageError(stage, f"{model.model} cannot be reached: {words}")
    for kind, sentence in _TRANSIENT:
        if isinstance(error, kind):
            return StageError(stage, f"{model.model} {sentence}: {words}")
    return StageError(stage, f"{model.model} failed ({type(error).__name__}): {words}")


def _of_length(error: dspy.LMError, model: Model, asked: tuple[int, float], words: str) -> ConfigError | str:
    """Return why prompt or answer has no room: a ConfigError if no shorter prompt helps; empty for other refusals."""
    if refuses_allowance(words):
        refused = f"{model.model} refuses an answer of max_tokens={model.max_tokens}"
        return ConfigError(f"{refused}: {words}; set model.max_tokens")
    if not (isinstance(error, dspy.ContextWindowExceededError) or concerns_length(words)):
        return ""
    told = f"{model.model} cannot take a prompt this long, about {asked[0]} tokens: {words}"
    if not shorten_prompts(model, *asked):
        return ConfigError(f"{told}; take a model with a longer context, or give the server one")
    return f"{told}; prompts are cut to it from now on, as model.context_tokens= would"


def filter_reason(response: Any) -> str:
    """Return why a safety filter kept a `dspy.lm15.Response` back, or ""."""
    words = " ".join(part.text for part in response.message.parts if isinstance(part, lm15.RefusalPart))
    if not words and response.finish_reason != "content_filter":
        return ""
    return f"{FILTERED} to answer: {' '.join(words.split())[:500] or 'it did not say why'}"


def failed_inside(response: Any) -> str:
    """Return the error in an answer that arrived as if nothing had failed, or ""."""
    body = response.provider_data or {}
    if "choices" not in body:
        return ""
    choice = next(iter(body["choices"] or ()), None)
    error = (choice.get("error") if isinstance(choice, dict) else None) or body.get("error")
    if error:
        return str((error.get("message") if isinstance(error, dict) else None) or error)
    words = choice or any(getattr(part, "text", "") for part in response.message.parts)
    return "" if words else "an answer without words"


def caused_by(error: BaseException | None, *names: str) -> bool:
    """Return whether the error, or one of its causes, is of a class with one of these names."""
    while error is not None:
        if type(error).__name__ in names:
            return True
        error = error.__cause__ or error.__context__
    return False


def _user_mends(error: dspy.LMError, where: str) -> str:
    words = f"{error.message} {error.provider_code}"
    if _PLACE.search(words):
        return "is not served where this machine is"
    if isinstance(error, dspy.LMAuthError) or _KEY.search(words):
        return f"refused the key in {where}"
    if isinstance(error, dspy.LMBillingError) and (error.provider_code != "FAILED_PRECONDITION" or _BILL.search(words)):
        return "wants to be paid first"
    unusable = isinstance(error, _UNUSABLE) or error.status == 404
    return "cannot be used as configured" if unusable else ""
