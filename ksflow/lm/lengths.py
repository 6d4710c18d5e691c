"""What a model's server takes: how long prompts and answers may be, as its refusals say, and whether it read the whole
prompt and is the model that was asked, as its answers say.

What one question taught holds for all stages of the process: a refusal that is certain is not asked for again.
"""

import logging
import re
import time
from dataclasses import dataclass, replace

from dspy.lm15 import Request

from ksflow.lm.model import Model

LEAST_ANSWER = 512  # tokens: where no more are left for an answer, it is the prompt that is too long
_SHORT = 1_000  # tokens of a prompt that is too short for its estimate to be held against the server's count
_CUT = 0.5  # share of the estimate below which, by the server's count, the prompt was cut
_SHRINK = 0.75  # of a prompt that was refused without a number, what is tried next
_HOPELESS = 4_000
_NUMBER = r"`?\D{0,3}(\d[\d,]*)"
_ANSWER = re.compile(
    rf"max\w*tokens\W*\d+ > {_NUMBER}|at most{_NUMBER} (?:completion|output) tokens|range of \S+ is \[1, {_NUMBER}\]"
    rf"|max\w*tokens\W* must be (?:less than or equal to|at most|<=){_NUMBER}",
    re.IGNORECASE,
)
"""The most that an answer may have."""
_CONTEXT = re.compile(
    rf"(?:context (?:size|window|length|limit)|maximum model length)(?: is| of)?(?: only| \(|: [\d +]+>)?{_NUMBER}"
    rf"|max_model_len\W{{0,3}}(\d+)|maximum number of tokens allowed \({_NUMBER}|too long: [\d,]+ tokens >{_NUMBER}"
    rf"|tokens\W*\+\W*max\w*tokens\W*must be <={_NUMBER}",
    re.IGNORECASE,
)
"""The most that prompt and answer may have together."""
_PROMPT = re.compile(
    rf"(?:has|passed|contains|contains at least|resulted in|too long:|limit:|request \(|token count \(){_NUMBER}"
    r"(?: input)?(?: tokens| \+|\))|\((\d[\d,]*)(?: tokens)? (?:in|of|from) the (?:messages|prompt|input)"
    rf"|Given:{_NUMBER} `inputs`|\(length{_NUMBER}\)",
    re.IGNORECASE,
)
"""What the prompt has by the server's count."""
_SIZE = re.compile(r"mini|nano|lite|small|tiny|flash")  # what makes another model of a name


@dataclass
class Lengths:
    """What a server takes, in tokens; None where nothing was refused yet."""

    context: int | None = None  # prompt and answer together
    answer: int | None = None
    since: float | None = None  # the moment from which on prompts are cut to the context
    guessed: bool = False  # the server gave no number for the context
    cut: str = ""  # what a person was told of prompts that are cut
    other: str = ""  # what a person was told of another model that answers


_known: dict[tuple[str, str], Lengths] = {}


def lengths(model: Model) -> Lengths:
    """Return what is known of a model at its address, shared by all stages."""
    return _known.setdefault((model.api_base or "", model.model), Lengths())


def context_of(model: Model) -> int | None:
    """Return how many tokens prompt and answer may have together, as configured or as the server said, if known."""
    return min(filter(None, (model.context_tokens, lengths(model).context)), default=None)


def fit_allowance(model: Model, request: Request, tokens_in: int) -> Request:
    """Return the request with an allowance for the answer that the server is known to take."""
    known, most = lengths(model), request.config.max_tokens
    if not most:
        return request
    room = known.context - tokens_in if known.context and not known.guessed else most
    return _limited(request, min(most, known.answer or most, max(room, LEAST_ANSWER)))


def reduce_allowance(model: Model, request: Request, words: str, tokens_in: int) -> Request | None:
    """Return the request with a smaller allowance for the answer; None unless a refusal's words ask for that."""
    known, most = lengths(model), request.config.max_tokens
    answer, context = _read(_ANSWER, words), _read(_CONTEXT, words)
    prompt = _read(_PROMPT, words) or tokens_in
    if most is not None and answer and not context:
        known.answer = answer
    if context:
        known.context, known.guessed = context, False
    room = min(answer or context or 0, (context or 0) - prompt if context else answer or 0)
    return _limited(request, room) if most is not None and LEAST_ANSWER <= room < most else None


def refuses_allowance(words: str) -> bool:
    """Return whether a provider refuses the answer's allowance (`max_tokens`), and not the prompt."""
    return bool(re.search(r"max\w*tokens", words, re.IGNORECASE)) and not concerns_length(words)


def shorten_prompts(model: Model, tokens_in: int, began: float) -> bool:
    """Have later prompts cut to what the server takes. False where the refused one, of that moment, was cut already."""
    known = lengths(model)
    again = known.since is not None and began > known.since
    if known.since is None or again:
        known.since = time.monotonic()
        if known.context is None or known.guessed:
            known.context, known.guessed = int(_SHRINK * min(known.context or tokens_in, tokens_in)), True
            return not again or known.context > _HOPELESS
    return not again


def concerns_length(words: str) -> bool:
    """Return whether a provider's refusal names the most tokens that prompt and answer may have together."""
    return bool(_CONTEXT.search(words))


def _limited(request: Request, most: int) -> Request:
    return replace(request, config=replace(request.config, max_tokens=most))


def _read(pattern: re.Pattern[str], words: str) -> int | None:
    match = pattern.search(words)
    digits = next(filter(None, match.groups()), "") if match else ""
    return int(digits.replace(",", "")) if digits else None


def answers_as(model: Model, name: str) -> str:
    """Return what is wrong where a server says that the model of this name answered, or an empty text.

    Dated versions, aliases and files of a name are the same model: gpt-5-2025-08-07, models/qwen.gguf.
    """
    names = (each.rpartition("/")[2].lower() for each in (model.name, name))
    asked, said = (re.sub(r"latest|[^a-z0-9]", "", each) for each in names)
    longer, shorter = (said, asked) if asked in said else (asked, said)
    alike = shorter in longer and not _SIZE.search(longer.replace(shorter, "", 1))
    if alike or asked in ("default", "local") or model.engine != "lm15" or model.provider == "azure":
        return ""
    return f"{model.model} was asked, and {name} answered by its server's word: see model.name and model.api_base"


def tell(model: Model, sent: int, counted: int, name: str) -> None:
    """Warn, once for each model, of what its answers show to be wrong."""
    known, log = lengths(model), logging.getLogger("ksflow.models")
    if not known.cut and sent >= _SHORT and 0 < counted < _CUT * sent:
        known.cut = (
            f"{model.model} was sent a prompt of about {sent} tokens, and its server counted {counted}: it cuts "
            "prompts to its context and says nothing; give it a longer one (num_ctx, OLLAMA_CONTEXT_LENGTH=65536, "
            "--ctx-size), or say what it has with model.context_tokens=TOKENS"
        )
        log.warning(known.cut)
    if not known.other and (wrong := answers_as(model, name)):
        known.other = wrong
        log.warning(wrong)
