"""What a model's tokens cost: by configuration, or by the price list that ships with DSPy.

The list is litellm's, read as data; litellm itself is not imported. No price is not a price of 0.
"""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ksflow.lm.connection import resolve_model
from ksflow.lm.dspy_seams import estimate_cost, model_info, source_info, usage_dict
from ksflow.lm.engines import Engine
from ksflow.lm.model import Model

# The list that ships with DSPy; otherwise the first look fetches one from GitHub.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

CONFIGURED = "configuration"
_MILLION = 1e6
_NAMESPACES = {
    "vertex_ai": ("vertex_ai", "vertex_ai-language-models", "vertex_ai-anthropic_models", "vertex_ai-mistral_models"),
    "bedrock": ("bedrock", "bedrock_converse"),
}
"""litellm's providers whose entries in the list go by several names."""
_LONG = re.compile(r"(.+)_above_(\d+)k_tokens")


@dataclass(frozen=True)
class Price:
    """What a model charges for tokens of prompts and of answers, in dollars per token, and who says so."""

    usd_in: float
    usd_out: float
    source: str  # `configuration`, or the list with its version and the model's name in it


def price(model: Model, tokens_in: int = 0) -> Price | None:
    """Return what tokens cost with a prompt of `tokens_in` tokens, without regard to caches; None if unknown."""
    if model.usd_per_mtok_in is not None and model.usd_per_mtok_out is not None:
        return Price(model.usd_per_mtok_in / _MILLION, model.usd_per_mtok_out / _MILLION, CONFIGURED)
    if not isinstance(model.engine, str):
        source = model.engine.price_source if isinstance(model.engine, Engine) else ""
        return Price(0.0, 0.0, source) if source else None
    info, source = _entry(model.model, model.engine)
    rates = [_rate(info, key, tokens_in) for key in ("input_cost_per_token", "output_cost_per_token")]
    reasoning = _rate(info, "output_cost_per_reasoning_token", tokens_in) or 0.0
    if None in rates:
        return None
    return Price(rates[0] or 0.0, max(rates[1] or 0.0, reasoning), source)


def answer_price(model: Model, response: Any) -> tuple[float, str]:
    """Return what a `dspy.lm15.Response` cost in dollars, and where the price was read, "" if unknown."""
    if isinstance(model.engine, Engine) and (cost := model.engine.answer_cost(response)):
        return cost
    counts = tokens(model, response)
    if not isinstance(model.engine, str) or model.usd_per_mtok_in is not None:
        rated = price(model)
        if rated is None or (rated.usd_in + rated.usd_out and not any(counts)):
            return 0.0, ""
        return _rated(model, response, rated), rated.source
    provider, name, namespaces = _route(model.model, model.engine)
    if not (_listed(provider, response.model, namespaces) or _listed(provider, name, namespaces)):
        return 0.0, ""
    usd, _ = estimate_cost(response, provider=provider, requested_model=name, namespaces=namespaces)
    usage, rate = _usage(model, response), price(model, counts[0])
    contradicted = counts != (usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)
    if rate and (usd is None or contradicted):  # DSPy prices no counts that contradict each other
        usd = max(usd or 0.0, _rated(model, response, rate))
    return (0.0, "") if usd is None else (float(usd), _entry(model.model, model.engine)[1])


def _rated(model: Model, response: Any, rate: Price) -> float:
    """Dollars by the counts of tokens and a rate."""
    tokens_in, tokens_out = tokens(model, response)
    count, usd = cached_tokens(model, response)
    return (tokens_in - count) * rate.usd_in + usd + tokens_out * rate.usd_out


def tokens(model: Model, response: Any) -> tuple[int, int]:
    """Return the tokens of prompt and answer, thinking included, as the provider counted them; 0 if it did not say.

    Counts that contradict each other err upwards: a server may count cached, reasoning or audio tokens beside the
    prompt or the answer, and what the total has beyond both is taken for tokens of the answer.
    """
    usage = _usage(model, response)
    details = [usage.get(f"{part}_tokens_details") or {} for part in ("prompt", "completion")]
    of_prompt, of_answer = ([int(count or 0) for count in counts.values()] for counts in details)
    tokens_in = _with_parts(int(usage.get("prompt_tokens") or 0), of_prompt)
    tokens_out = _with_parts(int(usage.get("completion_tokens") or 0), of_answer)
    return tokens_in, max(tokens_out, int(usage.get("total_tokens") or 0) - tokens_in)


def _with_parts(count: int, parts: list[int]) -> int:
    """A count that has these parts, or has them beside it where they are more than it."""
    return count + sum(parts) if max(parts, default=0) > count else count


def _usage(model: Model, response: Any) -> dict[str, Any]:
    provider = _route(model.model, model.engine)[0] if isinstance(model.engine, str) else None
    return dict(usage_dict(response, provider))


def cached_tokens(model: Model, response: Any) -> tuple[int, float]:
    """Return the tokens of the prompt that came from the provider's cache, and their cost in dollars; 0 if unknown."""
    count = int((_usage(model, response).get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    rate = price(model, tokens(model, response)[0]) if count else None
    if rate is None:
        return count, 0.0
    per_token = rate.usd_in
    if model.usd_per_mtok_cached is not None:
        per_token = model.usd_per_mtok_cached / _MILLION
    elif rate.source != CONFIGURED and isinstance(model.engine, str):
        info, _ = _entry(model.model, model.engine)
        listed = _rate(info, "cache_read_input_token_cost", tokens(model, response)[0])
        per_token = per_token if listed is None else listed
    return count, count * per_token


def answer_limit(model: Model, needed: int) -> int | None:
    """Return the limit of an answer that needs so many tokens: above `max_tokens` only if the price list has more."""
    limit = model.max_tokens
    if limit is None or needed <= limit or not isinstance(model.engine, str):
        return limit
    listed = _entry(model.model, model.engine)[0].get("max_output_tokens")
    return max(limit, min(needed, listed)) if isinstance(listed, int) else limit


@lru_cache
def _listed(provider: str, name: str, namespaces: tuple[str, ...] | None) -> bool:
    """Whether the list has the model; looking for one that it has not takes milliseconds."""
    return bool(model_info(provider, name, namespaces=namespaces))


@lru_cache
def _entry(model: str, engine: str) -> tuple[dict[str, Any], str]:
    """The model's entry in the list, and how the records name it. Empty where it has none."""
    provider, name, namespaces = _route(model, engine)
    version = source_info().get("snapshot_version", "?")
    return model_info(provider, name, namespaces=namespaces), f"DSPy's price list {version}, {name}"


@lru_cache
def _route(model: str, engine: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Provider and name by which DSPy's pricing knows a model, and where in the list it is looked up."""
    if engine == "litellm":
        provider, _, name = model.partition("/")
        return f"litellm {provider}", name, _NAMESPACES.get(provider, (provider,))
    return *resolve_model(model), None


def _rate(info: dict[str, Any], key: str, tokens_in: int) -> float | None:
    """Dollars per token under `key`; a long prompt may have a rate of its own."""
    longest = max(
        (int(match[2]) for name in info if (match := _LONG.fullmatch(name)) and match[1] == key),
        key=lambda thousands: thousands if tokens_in > thousands * 1000 else -1,
        default=0,
    )
    long_key = f"{key}_above_{longest}k_tokens"
    value = info.get(long_key if longest and tokens_in > longest * 1000 else key)
    return float(value) if isinstance(value, int | float) else None
