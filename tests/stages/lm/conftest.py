"""A small world for the llm stages, and a server that stands in for a provider."""

from collections.abc import Callable, Iterator

import pytest
from conftest import paired

from ksflow.protocols import override_call
from ksflow.records import (
    Arg,
    Call,
    Case,
    Evaluation,
    Evidence,
    Experiment,
    Kernel,
    Origin,
    Population,
    Problem,
    Selection,
    Timing,
    Trial,
    Verdict,
)
from ksflow.stages.selector.llm import LlmSelector
from lm.server import Provider

CODE = """// A kernel.
constexpr int MR = 8;  // tune: 4 6 8 12 | tile: rows
extern "C" void custom_kernel(const float *a, float *c, int64_t m, const int64_t *strides) {}
"""


@pytest.fixture
def provider(tmp_path, monkeypatch) -> Iterator[Provider]:
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path / "dspy"))
    made = Provider()
    yield made
    made.close()


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSPY_CACHEDIR", str(tmp_path_factory.mktemp("dspy")))
        yield


@pytest.fixture
def calls() -> Iterator[list[Call]]:
    kept: list[Call] = []
    with override_call(record=kept.append):
        yield kept


@pytest.fixture
def problem() -> Problem:
    cases = (Case("small", {"m": 16}, 1), Case("large", {"m": 512}, 2))
    return Problem(
        name="toy",
        title="Toy",
        description="Copy a to c.",
        statement="c = a, exactly.",
        root="/nowhere",
        reference="def ref_kernel(data):\n    return data[0]\n",
        languages=("cpp",),
        args=(Arg("a", "float32", "in"), Arg("c", "float32", "out")),
        dims=("m",),
        tests=cases[:1],
        benchmarks=cases,
        seeds=(),
    )


def accepted(small: float, large: float) -> Evaluation:
    timings = (Timing("small", small), Timing("large", large))
    return Evaluation(Verdict.ACCEPT, score_us=(small * large) ** 0.5, timings=timings)


@pytest.fixture
def population() -> Population:
    seed = Trial(
        "00001",
        Origin.SEED,
        kernel=Kernel("cpp", {"kernel.cpp": CODE}),
        evaluation=accepted(4.0, 100.0),
        name="kernel.cpp",
    )
    tried = Experiment("Unroll the loop.", "It is unrolled.", (0.0, 20.0), 10.0)
    faster = Trial(
        "00002",
        Origin.EXPERIMENT,
        ("00001",),
        tried,
        Kernel("cpp", {"kernel.cpp": CODE + "// unrolled\n"}, "Unrolled by 4."),
        evaluation=accepted(5.0, 50.0),
    )
    wrong = Trial(
        "00003",
        Origin.EXPERIMENT,
        ("00002", "00001"),
        tried,
        Kernel("cpp", {"kernel.cpp": CODE + "// wrong\n"}),
        evaluation=Evaluation(Verdict.INCORRECT, "c[3] is off", evidence=Evidence(more={"seed": 7})),
    )
    return paired((seed, faster, wrong))


@pytest.fixture
def selection(population) -> Selection:
    return population.choose("00002", "00001", "because")


@pytest.fixture
def select(problem, population) -> Callable[..., Selection]:
    """Asks a model, as the selector does."""
    return lambda model, **settings: LlmSelector(model, **settings)(problem, population)
