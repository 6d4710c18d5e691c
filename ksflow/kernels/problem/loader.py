"""A problem folder -> `Problem`. A folder is a problem; nobody has to touch a package to add one.

    problem.yaml    arguments, cases, tolerance, limits        statement.md   the task, for people and models
    reference.py    generate_input, ref_kernel, oracle         seeds/         kernels to start from (optional)
    VARIANT/        variant.yaml, reference.py, statement.md of a variant that differs in more than parameters

Nothing in the folder is run here: `reference.py` is read as text, and only the judge's side imports it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ksflow.errors import ConfigError, suggest
from ksflow.home import problem_folders, shipped_path
from ksflow.kernels.hardware import cost_model
from ksflow.kernels.languages import ENDINGS, LANGUAGES, ON_DEVICE, detect_language
from ksflow.kernels.problem.file import read_keys, read_text
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.problem.texts import for_target, task_source
from ksflow.records import C_TYPES, Arg, Case, Check, Limits, Problem, Scalar, Seed, Target, digest

T = TypeVar("T")
_VARIANT = "variant.yaml"
_NO_SIZE = ("seed", "weight")


def load(
    path: str,
    cases: str = "auto",
    variant: str | None = None,
    seeds: list[str] | str | None = None,
    target: Target | None = None,
) -> Problem:
    """The problem in a folder, or a shipped one by its name. Raises ConfigError. path: the folder or the name. cases:
    `tests`, `leaderboard`, `cpu`, or `auto` (the small CPU set unless `target` is a GPU). variant: one of those in
    problem.yaml; without one, the one for this target. seeds: the files to start from, beside the baselines; all where
    none are named.
    """
    root = _folder(path)
    if not (root / "problem.yaml").is_file():
        known = {*problem_folders(shipped_path("problems")), *problem_folders(Path())}
        raise ConfigError(f"no problem.yaml in {path}; {suggest(path, known)}")
    root = root.resolve()
    spec, extra, chosen, home = _spec(root, variant, target)
    tests, benchmarks, heldout = _cases(spec, cases, extra.get("params", {}), target, root)
    # how many cores a kernel has belongs to the target
    spec = {**{key: value for key, value in spec.items() if key != "cores"}, "cases": _without_held_out(spec["cases"])}
    reference, languages = read_text(home / "reference.py"), languages_of(spec["languages"], target)
    own_seeds, lane_seeds = _seeds(root, home, spec["baselines"], languages, target, seeds)
    identity = json.dumps([spec, chosen, _told_apart(spec["cases"], tests, benchmarks), reference], default=str)
    return Problem(
        name=root.name,
        title=spec["title"],
        description=spec["description"],
        statement=for_target(read_text(home / "statement.md"), target),
        root=str(home),
        reference=reference,
        listing=task_source(reference),
        languages=languages,
        args=tuple(_arg(arg, spec, extra) for arg in spec["args"]),
        dims=tuple(spec["dims"]),
        tests=tests,
        benchmarks=benchmarks,
        heldout=heldout,
        small=_small(spec, extra.get("params", {}), tests),
        seeds=own_seeds,
        alike=similar_languages(languages, target),
        lane_seeds=lane_seeds,
        variant=chosen,
        defines=extra.get("defines", {}),
        check=_record(Check, spec["check"], f"{root}/problem.yaml: check"),
        score=spec["score"],
        limits=_record(Limits, spec["limits"], f"{root}/problem.yaml: limits"),
        work=_work(spec, (*tests, *benchmarks, *heldout), root),
        digest=digest(identity),
    )


def wanted_cores(path: str) -> int:
    """Return the `cores` of a problem's file, 1 without a file. Raises ConfigError."""
    file = _folder(path) / "problem.yaml"
    return int(read_keys(file)["cores"]) if file.is_file() else 1


def _folder(path: str) -> Path:
    root = Path(path).expanduser()
    shipped = not (root / "problem.yaml").is_file() and "/" not in path
    return shipped_path("problems", path) if shipped else root


def _spec(root: Path, named: str | None, target: Target | None) -> tuple[dict[str, Any], Mapping[str, Any], str, Path]:
    """The problem's keys, those of the variant (named, or for the target), its name, and the folder of its texts."""
    spec = read_keys(root / "problem.yaml")
    variants, march = spec["variants"], target.march if target else ""
    folders = {file.parent.name: file.parent for file in sorted(root.glob(f"*/{_VARIANT}"))}
    fitting = (name for name, own in variants.items() if march.startswith(tuple(own.get("targets", ()))))
    chosen = named or next(fitting, "") or spec["variant"] or next(iter(variants), "")
    if chosen in folders:
        spec = read_keys(folders[chosen] / _VARIANT, spec)
        return spec, spec, chosen, folders[chosen]
    if chosen and chosen not in variants:
        raise ConfigError(f"{root.name} has no variant {chosen!r}; it has: {', '.join([*variants, *folders])}")
    return spec, variants.get(chosen, {}), chosen, root


def _arg(arg: Mapping[str, str], spec: Mapping[str, Any], extra: Mapping[str, Any]) -> Arg:
    """An argument whose dtype follows the variant: the default variant's dtype stands for the chosen one's."""
    default = spec["variants"].get(spec["variant"], {}).get("params", {}).get("dtype")
    dtype = arg.get("dtype", "")
    if dtype == default:
        dtype = extra.get("params", {}).get("dtype", dtype)
    if dtype not in C_TYPES:
        raise ConfigError(f"argument {arg['name']}: unknown dtype {dtype!r}; {suggest(dtype, C_TYPES)}")
    return _record(Arg, {**arg, "dtype": dtype}, f"argument {arg.get('name')}")


def _record(kind: type[T], value: Mapping[str, Any], where: str) -> T:
    try:
        return TypeAdapter(kind).validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _cases(
    spec: Mapping[str, Any], wanted: str, params: Mapping[str, Scalar], target: Target | None, root: Path
) -> tuple[tuple[Case, ...], tuple[Case, ...], tuple[Case, ...]]:
    sets = {name: picked for name, picked in spec["cases"].items() if name != "heldout"}
    if wanted == "auto":
        small = "cpu" in sets and not (target and target.kind == "gpu")
        wanted = "cpu" if small else "leaderboard" if "leaderboard" in sets else "tests"
    if wanted not in sets:
        raise ConfigError(f"{root.name} has no case set {wanted!r}; {suggest(wanted, ['auto', *sets])}")
    picked = sets[wanted]
    if isinstance(picked, dict):
        tests, benchmarks, held = (picked.get(kind, []) for kind in ("tests", "benchmarks", "heldout"))
    else:
        tests, benchmarks, held = sets.get("tests", picked), picked, spec["cases"].get("heldout", [])
    if not benchmarks:
        raise ConfigError(f"{root}/problem.yaml: case set {wanted!r} has no benchmarks")
    if not isinstance(held, list):
        raise ConfigError(f"{root}/problem.yaml: cases.heldout is a list of cases, without tests and benchmarks")
    made = [tuple(case_from(case, params, spec["dims"]) for case in cases) for cases in (tests, benchmarks, held)]
    if shown := {case.name for case in made[2]} & {case.name for cases in made[:2] for case in cases}:
        raise ConfigError(f"{root}/problem.yaml: {min(shown)} is held out and shown; take another shape for heldout")
    return made[0], made[1], made[2]


def _small(spec: Mapping[str, Any], params: Mapping[str, Scalar], tests: Iterable[Case]) -> tuple[Case, ...]:
    """The tests of the CPU's own case set, else the smallest test by its sizes."""
    own = spec["cases"].get("cpu")
    if isinstance(own, dict) and own.get("tests"):
        return tuple(case_from(case, params, spec["dims"]) for case in own["tests"])
    return tuple(sorted(tests, key=lambda case: math.prod(int(case.params[dim]) for dim in spec["dims"]))[:1])


def _work(spec: Mapping[str, Any], cases: tuple[Case, ...], root: Path) -> dict[str, str]:
    work = {str(key): str(value) for key, value in spec["work"].items()}
    try:
        cost_model.check(work, cases)
    except ValueError as error:
        raise ConfigError(f"{root}/problem.yaml: {error}") from error
    return work


def _without_held_out(sets: Mapping[str, Any]) -> dict[str, Any]:
    """The case sets that a verdict and a time depend on."""

    def shown(mapping: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in mapping.items() if name != "heldout"}

    return {name: shown(picked) if isinstance(picked, dict) else picked for name, picked in shown(sets).items()}


def _told_apart(sets: Mapping[str, Any], tests: Iterable[Case], benchmarks: Iterable[Case]) -> list[Any]:
    """Return what tells the chosen cases from the file's other sets: the timed cases' names; if another set has these
    sizes, also the test cases, the seeds and the weights.
    """
    timed = [picked["benchmarks"] if isinstance(picked, dict) else picked for picked in sets.values()]
    sizes = [[{key: value for key, value in case.items() if key not in _NO_SIZE} for case in cases] for cases in timed]
    if all(sizes.count(one) == 1 for one in sizes):
        return [case.name for case in benchmarks]
    weights = [case.weight for case in benchmarks]
    return [
        *([[case.name, case.seed] for case in cases] for cases in (tests, benchmarks)),
        *([weights] if len(set(weights)) > 1 else []),
    ]


def case_from(case: Mapping[str, Scalar], params: Mapping[str, Scalar], dims: list[str]) -> Case:
    """A case of problem.yaml, with the parameters that it does not name. ConfigError."""
    own = {key: value for key, value in case.items() if key not in _NO_SIZE}
    if missing := [dim for dim in dims if dim not in own]:
        raise ConfigError(f"case {dict(case)} lacks {', '.join(missing)}")
    if wrong := [f"{dim}={own[dim]!r}" for dim in dims if not isinstance(own[dim], int)]:
        raise ConfigError(f"case {dict(case)}: a size is a whole number, not {', '.join(wrong)}")
    name = "x".join(str(own[dim]) for dim in dims)
    rest = [f"{key}={value}" for key, value in own.items() if key not in dims]
    return Case(" ".join([name, *rest]), {**own, **params}, int(case.get("seed", 0)), float(case.get("weight", 1)))


def languages_of(declared: Sequence[str], target: Target | None) -> tuple[str, ...]:
    """Those of a problem's languages that a target takes: a GPU none for CPUs, and only its own maker's."""
    if target is None or target.kind != "gpu":
        return tuple(name for name in declared if name not in ON_DEVICE)
    return tuple(n for n in declared if n == "python" or LANGUAGES[n].fits(target.march))


def similar_languages(languages: Sequence[str], target: Target | None) -> tuple[str, ...]:
    """The languages for a target that are like one of these."""
    return languages_of([one.name for one in LANGUAGES.values() if one.like in languages], target)


def _seeds(
    root: Path,
    home: Path,
    baselines: list[str],
    languages: tuple[str, ...],
    target: Target | None,
    named: list[str] | str | None,
) -> tuple[tuple[Seed, ...], tuple[Seed, ...]]:
    """A problem's kernels, also those in the folder `cpu` or `gpu`, or of the variant; those in `alike` languages."""
    wanted = [named] if isinstance(named, str) else named
    folder = root / "seeds"
    if not folder.is_dir() and root.parent == shipped_path("problems").resolve():
        folder = shipped_path("seeds", root.name)
    folder = folder if home == root or not (folder / home.name).is_dir() else folder / home.name
    found = (file for file in [*folder.glob("*"), *folder.glob("[cg]pu/*")] if file.is_file())
    files = sorted(found, key=lambda file: file.name)
    if lost := set(baselines) - {file.name for file in files}:
        ours = shipped_path("seeds", "NAME")
        raise ConfigError(
            f"{root}/problem.yaml: baselines {sorted(lost)} are not in {folder}; put them there "
            f"(for a copy of a shipped problem: cp -r {ours}/. {folder})"
        )
    kind = target.kind if target else "cpu"
    fit = [file for file in files if file.suffix in ENDINGS and file.parent.name in (folder.name, kind)]
    kinds = {file: detect_language(file.name, read_text(file), LANGUAGES) for file in fit}
    likely = similar_languages(languages, target)
    kernels = [f for f, spoken in kinds.items() if spoken in (*languages, *likely)]
    if unknown := sorted(set(wanted or ()) - {file.name for file in kernels}):
        valid = ", ".join(file.name for file in kernels)
        variant = "" if folder.name in ("seeds", root.name) else f", variant {folder.name},"
        raise ConfigError(f"problem.seeds={unknown}: {root.name}{variant} has for this target: {valid}")
    chosen = [f for f in kernels if (kinds[f] in languages if wanted is None else f.name in (*wanted, *baselines))]
    beside = [f for f in kernels if kinds[f] in likely and (wanted is None or f.name in wanted)]
    own = tuple(Seed(f.name, kernel_file(str(f), languages), f.name in baselines) for f in chosen)
    return own, tuple(Seed(f.name, kernel_file(str(f), likely)) for f in beside)
