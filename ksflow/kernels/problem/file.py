"""What `problem.yaml` may hold, as one model: a mistake in it is told in one line that names its place.

Only shapes and types are checked here; what the words mean (expressions, dtypes, files) is `loader`'s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError
from pydantic_core import PydanticCustomError

from ksflow.errors import ConfigError, reaching, suggest
from ksflow.kernels.languages import LANGUAGES
from ksflow.records import Scalar

_LIST, _BOTH = "<list>", "<tests and benchmarks>"
_SCORES = ("geomean", "mean", "last")


def _spoken(name: str) -> str:
    if name not in LANGUAGES:
        raise PydanticCustomError("language", "{known}", {"known": f"one of {', '.join(LANGUAGES)}"})
    return name


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Argument(_Part):
    name: str
    dtype: str
    role: Literal["in", "out", "inout"]
    shape: str = ""
    layout: str = ""
    doc: str = ""


class _Variant(_Part):
    params: dict[str, Scalar] = {}
    defines: dict[str, Scalar] = {}
    targets: list[str] = []


class _Case(_Part):
    """Sizes and other parameters by name, with the seed of the inputs and the case's weight in the score."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Scalar]
    seed: int = 0
    weight: Annotated[float, Field(gt=0, lt=1e100, allow_inf_nan=False)] = 1.0


class _CaseSet(_Part):
    tests: list[_Case] = []
    benchmarks: list[_Case] = []
    heldout: list[_Case] = []


_Cases = Annotated[
    Annotated[list[_Case], Tag(_LIST)] | Annotated[_CaseSet, Tag(_BOTH)],
    Discriminator(lambda given: _LIST if isinstance(given, list) else _BOTH),
]


class ProblemFile(_Part):
    """The whole file."""

    title: str
    args: list[_Argument]
    dims: list[str]
    cases: dict[str, _Cases]
    description: str = ""
    languages: list[Annotated[str, AfterValidator(_spoken)]] = ["python", "cpp"]
    variants: dict[str, _Variant] = {}
    variant: str = ""
    check: dict[str, Any] = {}
    score: str = "geomean"
    baselines: list[str] = []
    limits: dict[str, Any] = {}
    cores: Annotated[int, Field(ge=1)] = 1
    work: dict[str, Scalar] = {}


class _VariantFile(ProblemFile):
    """A `variant.yaml` with the problem's keys filled in."""

    params: dict[str, Scalar] = {}
    defines: dict[str, Scalar] = {}


def read_text(file: Path) -> str:
    """A file's text. Raises ConfigError."""
    try:
        with reaching(f"cannot read {file}", "see whether it is there, and who may read it"):
            return file.read_text(encoding="utf-8-sig")  # Windows' editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {file}: {error}") from error


def read_keys(file: Path, problem: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The file's keys as they are written, with defaults. Raises ConfigError. problem: the keys that a `variant.yaml`
    takes what it leaves out from.
    """
    text = read_text(file)
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    model, base = (ProblemFile, {}) if problem is None else (_VariantFile, problem)
    fields = model.model_fields
    required = sorted(name for name, field in fields.items() if field.is_required() and name not in base)
    if not isinstance(given, dict):
        raise ConfigError(f"{file} must be a mapping with {', '.join(required or fields)}")
    for key in given:
        if key not in fields:
            raise ConfigError(f"{file}: unknown key {key!r}; {suggest(str(key), fields)}")
    if problem is not None and "cores" in given:
        raise ConfigError(f"{file}: a variant has the problem's cores; move `cores` to problem.yaml")
    given = {**base, **given}
    if missing := [name for name in required if name not in given]:
        raise ConfigError(f"{file}: missing {', '.join(missing)}")
    try:
        model.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"{file}: {_first_mistake(error)}") from error
    if given.get("score", "geomean") not in _SCORES:
        raise ConfigError(f"{file}: score {given['score']!r} is not one of {', '.join(_SCORES)}")
    return {name: field.default for name, field in fields.items() if not field.is_required()} | given


def _first_mistake(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    named = [part for part in first["loc"] if part not in (_LIST, _BOTH)]
    location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in named).lstrip(".")
    what = "unknown key" if first["type"] in ("extra_forbidden", "unexpected_keyword_argument") else first["msg"]
    value = repr(first["input"])
    seen = f", not {value[:60]}" if first["type"] != "missing" and what == first["msg"] else ""
    return f"{location}: {what[:1].lower()}{what[1:]}{seen}"
