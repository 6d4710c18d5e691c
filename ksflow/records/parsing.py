"""Conversion of records from and to JSON values, with the standard library alone, because workers have nothing else.

Types are strict: no text becomes a number, no unknown key is accepted, no number is infinite. Records with a field
`more` are read from older and newer versions: unknown keys, and values of a wrong type, are kept in `more` unchanged.
On disk the keys of `more` stand beside the others, and empty fields that are empty by default are left out.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

Converter = Callable[[Any, str], Any]  # (value, its path) -> the converted value; raises ValueError or TypeError
T = TypeVar("T")
_SCALARS = frozenset({type(None), bool, int, float, str})
_LATER: Mapping[str, tuple[str, ...]] = {
    "Cost": ("untold", "tokens_cached", "usd_cached"),
    "Trial": ("baseline",),
    "Ratio": ("ranked", "moment"),
    "Comparison": ("ranked", "moment"),
    "Claim": ("moment",),
}  # fields added after runs were recorded: left out at their default, as in old records


def parse(kind: type[T], value: object) -> T:
    """Return the record in a JSON value. Raises ValueError or TypeError."""
    parsed: T = _converter(cast(Hashable, kind))(value, getattr(kind, "__name__", "value"))
    return parsed


def misfits(value: object) -> Iterator[str]:
    """Yield the error of each value that is in `more` although its key is known."""
    if isinstance(value, tuple):
        for item in value:
            yield from misfits(item)
    if not is_dataclass(value) or isinstance(value, type):
        return
    kind, items = type(value), {field.name: getattr(value, field.name) for field in fields(value)}
    for name in filter(items.get("more", {}).__contains__, items):
        try:
            _converter(get_type_hints(kind)[name])(items["more"][name], f"{kind.__name__}.{name}")
        except (TypeError, ValueError) as error:
            yield f"{kind.__name__}.{name}: {error}"
    for item in items.values():
        yield from misfits(item)


def as_json(value: Any) -> Any:
    """Return a record as a JSON value."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, tuple | list):
        return list(value) if _SCALARS.issuperset(map(type, value)) else [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no JSON")
    left_out = _left_out(cast(Hashable, type(value)))
    items = {name: getattr(value, name) for name in left_out}
    if "more" in items:
        more = items.pop("more")
        items = {name: item for name, item in items.items() if item != left_out[name]} | more
    elif later := _LATER.get(type(value).__name__):
        items = {name: item for name, item in items.items() if name not in later or item != left_out[name]}
    return {name: as_json(item) for name, item in items.items()}


@cache
def _left_out(kind: Any) -> dict[str, Any]:
    """Return field -> default if that is None, empty, or the field was added later; else MISSING."""
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kind)
    }
    empty: tuple[Any, ...] = (None, "", (), {})
    later = _LATER.get(kind.__name__, ())
    return {name: default if default in empty or name in later else MISSING for name, default in defaults.items()}


@cache
def _converter(kind: Any) -> Converter:
    origin = get_origin(kind)
    if kind is Any:
        return lambda value, at: value
    if isinstance(kind, UnionType):
        return _union(get_args(kind))
    if origin is tuple:
        return _tuple(*get_args(kind))
    if origin is Literal:
        return _choice(get_args(kind))
    if origin in (Mapping, dict):
        convert_item = _converter(get_args(kind)[1])

        def convert(value: Any, at: str) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise TypeError(f"{at} is an object, not {type(value).__name__}")
            return {name: convert_item(item, at) for name, item in value.items()}

        return convert
    if is_dataclass(kind):
        return _record(kind)
    if issubclass(kind, Enum):
        return lambda value, at: kind(value)
    return _float if kind is float else _exactly(kind)


def _exactly(kind: type) -> Converter:
    def convert(value: Any, at: str) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{at} is {kind.__name__}, not {type(value).__name__}")
        return value

    return convert


def _choice(values: tuple[Any, ...]) -> Converter:
    def convert(value: Any, at: str) -> Any:
        if value not in values:
            raise ValueError(f"{at} is none of {', '.join(map(repr, values))}")
        return value

    return convert


def _float(value: Any, at: str) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{at} is float, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{at} is not finite")
    return number


def _union(kinds: tuple[Any, ...]) -> Converter:
    converters = {kind: _converter(kind) for kind in kinds}

    def convert(value: Any, at: str) -> Any:
        if type(value) in converters:
            return converters[type(value)](value, at)
        errors = []
        for converter in converters.values():
            try:
                return converter(value, at)
            except TypeError as error:
                errors.append(error)
        raise errors[0]

    return convert


def _tuple(first: Any, *others: Any) -> Converter:
    convert_first = _converter(first)
    converters = () if others == (...,) else (convert_first, *map(_converter, others))

    def convert(value: Any, at: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError(f"{at} is a list, not {type(value).__name__}")
        if not converters and {*map(type, value)} == {first} and (first is not float or all(map(math.isfinite, value))):
            return tuple(value)  # a fast path for many numbers
        if converters and len(value) != len(converters):
            raise ValueError(f"{at} has {len(value)} items, not {len(converters)}")
        if converters:
            return tuple(converter(item, at) for converter, item in zip(converters, value, strict=True))
        return tuple(convert_first(item, at) for item in value)

    return convert


def _record(kind: Any) -> Converter:
    hints = get_type_hints(kind)
    converters = {field.name: _converter(hints[field.name]) for field in fields(kind)}
    tolerant = converters.pop("more", None) is not None

    def convert(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{at} is an object, not {type(value).__name__}")
        known, more = {}, {}
        for name, item in value.items():
            if name not in converters:
                more[name] = item
                continue
            try:
                known[name] = converters[name](item, f"{kind.__name__}.{name}")
            except (TypeError, ValueError):
                if not tolerant:
                    raise
                more[name] = item
        if more and not tolerant:
            raise ValueError(f"{kind.__name__} has no {', '.join(sorted(more))}")
        return kind(**known, more=more) if more else kind(**known)

    return convert
