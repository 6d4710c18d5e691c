"""Problem folders: the shipped ones say what they should, anybody's own loads, mistakes get one line."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ksflow.errors import ConfigError
from ksflow.home import shipped_path
from ksflow.kernels.hardware.target import from_data_sheet
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.problem.loader import load
from ksflow.kernels.problem.texts import for_target, task_source
from ksflow.lm.prompts.render import task
from ksflow.records import Problem, Target


def test_the_papers_problem_is_the_papers() -> None:
    leaderboard = load("fp8_gemm", "leaderboard")
    assert len(leaderboard.tests) == 11
    assert len(leaderboard.benchmarks) == 18
    assert leaderboard.benchmarks[0].params == {"m": 1024, "n": 1536, "k": 7168, "dtype": "float8_e4m3fn"}
    assert leaderboard.benchmarks[12].seed == 764243
    assert leaderboard.score == "geomean"
    assert "const uint8_t *a, const uint8_t *b, const float *a_scale" in leaderboard.signature
    assert "uint16_t *c, int64_t m, int64_t n, int64_t k, const int64_t *strides" in leaderboard.signature


def test_a_statement_has_the_sections_of_its_target_alone() -> None:
    marked = {
        "h200": ("(GPU)", "### Hopper"),
        "mi300x": ("(GPU)", "### CDNA3"),
        "b200": ("(GPU)",),
        "cpu": ("(CPU, one core)",),
    }
    marches = {"h200": "sm_90a", "mi300x": "gfx942", "b200": "sm_100a", "cpu": "native"}
    every = {heading for headings in marked.values() for heading in headings}
    for variant in ("e4m3fn", "e4m3fn_kmajor"):
        for name, march in marches.items():
            target = Target(name, "cpu" if name == "cpu" else "gpu", "some chip", march=march)
            text = load("fp8_gemm", variant=variant, target=target).statement
            assert "<!--" not in text
            assert "## What is accepted" in text
            if variant == "e4m3fn":
                assert {heading for heading in every if heading in text} == {*marked[name]}
            else:
                assert ("### Hopper" in text) == (name == "h200")
                assert ("### CPU" in text) == (name == "cpu")


def test_a_section_ends_where_its_level_does_and_code_has_no_headings() -> None:
    text = "# A\na\n## B <!-- target: amx_tile gfx94 -->\nb\n### C\nc\n```\n# no heading\n```\n## D\nd\n"
    amx = Target("auto", "cpu", "a chip", features=("amx_tile",))
    assert for_target(text, Target("auto", "cpu", "a chip")) == "# A\na\n## D\nd\n"
    assert for_target(text, amx) == for_target(text, None) == text.replace(" <!-- target: amx_tile gfx94 -->", "")


def test_models_read_what_the_task_computes_and_nothing_of_what_the_judge_needs(tmp_path: Path) -> None:
    for name in ("depthwise_conv3d", "fp8_gemm", "softmax", "trimul"):
        shown = load(name).reference_text
        for word in ("def oracle", "upstream_check", "UPSTREAM", "ksflow.evaluation.judge", "Runs in the judge"):
            assert word not in shown, (name, word)
        space: dict[str, object] = {}
        exec(compile(shown, name, "exec"), space)
        assert callable(space["ref_kernel"])
        assert callable(space["generate_input"])
    head, other = "import torch\n# Of rows.\nWIDE = {8: 2}\n", "\n\ndef other(x):\n    return x\n"
    task = "\n\n@torch.no_grad()\ndef ref_kernel(data):\n    return WIDE\n"
    assert task_source(head + other + task) == head + task
    assert task_source("def oracle(data): ...\n") == "def oracle(data): ...\n"


def test_auto_takes_the_small_set_unless_there_is_a_gpu() -> None:
    cpu = load("fp8_gemm", target=Target("cpu", "cpu", "some chip"))
    gpu = load("fp8_gemm", target=Target("h200", "gpu", "some chip"))
    assert [case.name for case in cpu.benchmarks] == ["64x512x1024", "128x1024x512", "256x512x512"]
    assert len(gpu.benchmarks) == 18
    assert cpu.digest != gpu.digest


def test_a_variant_changes_dtype_and_defines() -> None:
    problem = load("fp8_gemm", variant="e4m3fnuz")
    assert problem.args[0].dtype == "float8_e4m3fnuz"
    assert problem.defines == {"E4M3FNUZ": 1}
    assert problem.tests[0].params["dtype"] == "float8_e4m3fnuz"
    with pytest.raises(ConfigError, match="no variant 'e5m2'; it has: e4m3fn, e4m3fnuz"):
        load("fp8_gemm", variant="e5m2")


def test_a_variant_with_a_folder_has_its_own_layout_statement_and_seeds() -> None:
    columns, rows = load("fp8_gemm"), load("fp8_gemm", variant="e4m3fn_kmajor")
    assert (rows.name, rows.variant, dict(rows.defines)) == ("fp8_gemm", "e4m3fn_kmajor", {"E4M3FNUZ": 0, "K_MAJOR": 1})
    assert [arg.layout for arg in rows.args[:2]] == ["K-major (row-major), strides (k, 1)"] * 2
    assert [arg.layout for arg in rows.args[2:]] == [arg.layout for arg in columns.args[2:]]
    assert "a is m rows and b is n rows of k contiguous bytes" in rows.statement
    assert [(case.name, case.seed) for case in rows.benchmarks] == [(c.name, c.seed) for c in columns.benchmarks]
    assert (rows.check, rows.limits, rows.work) == (columns.check, columns.limits, columns.work)
    assert [seed.name for seed in rows.seeds] == ["00_numpy.py", "00_torch.py", "01_naive.cpp"]
    assert not {seed.kernel.digest for seed in rows.seeds} & {seed.kernel.digest for seed in columns.seeds}
    gpu = load("fp8_gemm", variant="e4m3fn_kmajor", target=Target("h200", "gpu", "some chip", march="sm_90a"))
    assert [seed.name for seed in gpu.seeds] == ["00_torch.py", "01_naive.cu", "02_triton.py", "03_mma.cu"]
    with pytest.raises(
        ConfigError, match=r"\['02_ikj.cpp'\]: fp8_gemm, variant e4m3fn_kmajor, has for this target: 00_"
    ):
        load("fp8_gemm", variant="e4m3fn_kmajor", seeds=["02_ikj.cpp"])


def test_nothing_of_a_variants_folder_is_in_the_other_variants(tmp_path: Path) -> None:
    alone = tmp_path / "fp8_gemm"
    shutil.copytree(shipped_path("problems", "fp8_gemm"), alone, ignore=shutil.ignore_patterns("e4m3fn_kmajor"))
    shutil.copytree(shipped_path("seeds", "fp8_gemm"), alone / "seeds", ignore=shutil.ignore_patterns("e4m3fn_kmajor"))
    before, now = load(str(alone), variant="e4m3fn"), load("fp8_gemm", variant="e4m3fn")
    assert replace(before, root=now.root) == now  # what models are told, and the digest that kept verdicts hold for


def test_baselines_are_marked_seeds() -> None:
    seeds = {seed.name: seed for seed in load("softmax").seeds}
    assert [name for name, seed in seeds.items() if seed.baseline] == ["00_numpy.py", "00_torch.py"]
    assert seeds["01_naive.cpp"].kernel.language == "cpp"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user's own, outside the package."""
    folder = tmp_path / "mine"
    shutil.copytree(shipped_path("problems", "softmax"), folder)
    shutil.copytree(shipped_path("seeds", "softmax"), folder / "seeds")
    return folder


def test_a_folder_of_ones_own_needs_nothing_else(mine: Path) -> None:
    problem = load(str(mine))
    assert problem.name == "mine"
    assert len(problem.seeds) == len(load("softmax").seeds)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("score: geomean", "score: median", "score 'median' is not one of geomean, mean, last"),
        ("score:", "scor:", r"unknown key 'scor'; did you mean score\?"),
        ("title:", "description:", "missing title"),
        ("dtype: float32", "dtype: float33", r"unknown dtype 'float33'; did you mean float32\?"),
        ("accumulate: float32", "accumulated: float32", "check.*accumulated"),
        ("memory_mb: 4096", "memory_mb: 4 GB", "limits.*memory_mb"),
        ("[00_torch.py,", "[09_torch.py,", "baselines .*09_torch.py.*put them there .*cp -r .*seeds/NAME"),
        ("{rows: 512, ", "{", "lacks rows"),
        ("args:", "args: [", "is not YAML"),
        (
            '"5*rows*cols"',
            '"5*row*cols"',
            "problem.yaml: work.flops: 'row' is not known; known are rows",
        ),
        ("  flops:", "  flop:", "problem.yaml: work.flop: unknown key; valid: flops, bytes, dtype"),
        ("score: geomean", "score: [1]", r"problem.yaml: score: input should be a valid string, not \[1\]"),
        ("    role: in\n", "    rol: in\n", r"problem.yaml: args\[0\]\.role: field required"),
        ("    role: in\n", "    role: in\n    kind: a\n", r"args\[0\]\.kind: unknown key"),
        ("seed: 52}", "seed: many}", r"cases\.cpu\.tests\[1\]\.seed: input should be a valid integer, not 'many'"),
        ("seed: 52}", "weight: 0}", r"tests\[1\]\.weight: input should be greater than 0, not 0"),
        ("seed: 52}", "weight: .inf}", r"tests\[1\]\.weight: input should be .*, not inf"),
        ("seed: 52}", "weight: much}", r"tests\[1\]\.weight: input should be a valid number, not 'much'"),
        ("{rows: 512, ", "{rows: many, ", "a size is a whole number, not rows='many'"),
        ("languages: [python,", "languages: [c++,", r"languages\[0\]: one of cpp, .*, triton, not 'c\+\+'"),
        ("params: {}, ", "param: {}, ", r"variants\.float32\.param: unknown key"),
        ("  flops:", "  dtype: fp9\n  flops:", "work.dtype: 'fp9' is not one of fp64"),
    ],
)
def test_a_mistake_gets_one_line(mine: Path, old: str, new: str, message: str) -> None:
    file = mine / "problem.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        load(str(mine))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("args", "x", "args: input should be a valid list, not 'x'"),
        ("args", "[x]", r"args\[0\]: input should be a valid dictionary.*, not 'x'"),
        ("cases", "[1]", r"cases: input should be a valid dictionary, not \[1\]"),
        ("cases", "{tests: [1]}", r"cases\.tests\[0\]: input should be a valid dictionary.*, not 1"),
        ("cases", "{cpu: 3}", r"cases\.cpu: input should be a valid dictionary.*, not 3"),
        ("cases", "{}", "no case set 'tests'"),
        ("dims", "rows", "dims: input should be a valid list, not 'rows'"),
        ("variants", "[a]", "variants: input should be a valid dictionary"),
        ("variants", "{float32: 1}", r"variants\.float32: input should be a valid dictionary"),
        ("baselines", "1", "baselines: input should be a valid list, not 1"),
        ("limits", "none", "limits: input should be a valid dictionary, not 'none'"),
        ("check", "[8]", "check: input should be a valid dictionary"),
        ("title", "[a, b]", "title: input should be a valid string"),
        ("work", "fast", "work: input should be a valid dictionary, not 'fast'"),
    ],
)
def test_whatever_stands_in_place_of_a_value_is_one_line_too(mine: Path, key: str, value: str, message: str) -> None:
    given = yaml.safe_load((mine / "problem.yaml").read_text())
    (mine / "problem.yaml").write_text(yaml.safe_dump({**given, key: yaml.safe_load(value)}))
    with pytest.raises(ConfigError, match=message) as caught:
        load(str(mine))
    assert "\n" not in str(caught.value)


def test_a_variants_folder_of_ones_own(mine: Path) -> None:
    folder = mine / "wide"
    folder.mkdir()
    (folder / "variant.yaml").write_text("title: Wide rows\nparams: {scale: 2}\nlimits: {check_s: 5}\n")
    with pytest.raises(ConfigError, match=r"cannot read .*wide/reference.py"):
        load(str(mine), variant="wide")
    for name in ("reference.py", "statement.md"):
        shutil.copy(mine / name, folder / name)
    plain, wide = load(str(mine)), load(str(mine), variant="wide")
    assert (wide.title, wide.limits.check_s, wide.benchmarks[0].params["scale"]) == ("Wide rows", 5, 2)
    assert (wide.root, wide.dims) == (str(folder), plain.dims)
    assert wide.seeds == plain.seeds  # it has none of its own
    assert wide.digest != plain.digest
    (folder / "variant.yaml").write_text("define: {}")
    with pytest.raises(ConfigError, match=r"variant.yaml: unknown key 'define'; did you mean defines\?"):
        load(str(mine), variant="wide")
    (folder / "variant.yaml").write_text("args: 3")
    with pytest.raises(ConfigError, match=r"variant.yaml: args: input should be a valid list, not 3"):
        load(str(mine), variant="wide")


def test_case_sets_of_equal_sizes_are_told_apart_by_their_tests_seeds_and_weights(mine: Path) -> None:
    file = mine / "problem.yaml"
    given = yaml.safe_load(file.read_text())
    timed = given["cases"]["cpu"]["benchmarks"]
    sets = {"strict": [*timed, *timed], "lax": timed, "other": [{**case, "seed": 7} for case in timed]}
    sets["weighted"] = [{**case, "weight": 1 + number / 2} for number, case in enumerate(timed)]
    for name, tests in sets.items():
        benchmarks = tests if name in ("other", "weighted") else timed
        given["cases"][name] = {"tests": tests, "benchmarks": benchmarks}
    file.write_text(yaml.safe_dump(given))
    found = {load(str(mine), name).digest for name in (*sets, "cpu")}
    assert len(found) == len(sets) + 1
    weighted = load(str(mine), "weighted")
    assert weighted.benchmarks[1].weight == 1.5
    assert "weight" not in weighted.benchmarks[1].params
    assert (weighted.score_name, load(str(mine), "lax").score_name) == ("weighted geomean", "geomean")
    assert f"{weighted.benchmarks[0].name} (weight " in task(weighted)


def test_a_missing_problem_names_those_there_are() -> None:
    listed = r"no problem.yaml in fp8_gem; did you mean fp8_gemm\? valid: depthwise_conv3d, fp8_gemm, softmax, "
    with pytest.raises(ConfigError, match=listed):
        load("fp8_gem")
    with pytest.raises(ConfigError, match=r"no case set 'cpus'; did you mean cpu\?"):
        load("fp8_gemm", "cpus")


def test_a_kernel_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.cpp"
    file.write_text("int x;")
    assert kernel_file(str(file), ("cpp",)).main == "int x;"
    with pytest.raises(ConfigError, match="this problem takes python"):
        kernel_file(str(file), ("python",))
    with pytest.raises(ConfigError, match="cannot read"):
        kernel_file(str(tmp_path / "absent.cpp"), ("cpp",))


def test_languages_seeds_and_variant_follow_the_target() -> None:
    def of(march: str) -> Problem:
        return load("fp8_gemm", target=from_data_sheet("some", "some GPU", march, {"bytes": 1e12}))

    hopper, cdna3, cdna4 = of("sm_90a"), of("gfx942"), of("gfx950")
    assert hopper.languages == ("python", "triton", "cuda")
    assert cdna3.languages == ("python", "triton", "hip")
    assert (hopper.variant, cdna3.variant, cdna4.variant) == ("e4m3fn", "e4m3fnuz", "e4m3fn")
    assert {seed.kernel.language for seed in hopper.seeds} == {"python", "triton", "cuda"}
    assert "02_mfma.hip" in {seed.name for seed in cdna3.seeds}
    assert "00_numpy.py" not in {seed.name for seed in hopper.seeds}
    assert load("fp8_gemm").languages == ("python", "cpp")
    assert [case.params["m"] for case in hopper.small] == [32, 96, 160, 64, 96]
    assert (hopper.check.unit("sm_90a"), hopper.check.unit("gfx942")) == (0.004, 0.0)


def test_seeds_can_be_chosen_and_baselines_stay() -> None:
    found = load("fp8_gemm", seeds=["02_ikj.cpp"])
    assert [seed.name for seed in found.seeds] == ["00_numpy.py", "00_torch.py", "02_ikj.cpp"]
    with pytest.raises(
        ConfigError, match=r"problem.seeds=\['02_wgmma.cu'\]: fp8_gemm has for this target: .*03_tiles.cpp"
    ):
        load("fp8_gemm", seeds=["02_wgmma.cu"])
