"""Every option of every group composes and builds, and a mistyped word is answered with the valid ones."""

from pathlib import Path

import pytest

from ksflow.compose import build, compose
from ksflow.errors import ConfigError
from ksflow.home import shipped
from ksflow.lineage import Lineage

OPTIONS = sorted(
    (folder.name, file.stem)
    for folder in shipped("conf").iterdir()
    if folder.is_dir()
    for file in folder.glob("*.yaml")
)
KEYS = ("GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY")
KEYS += ("AZURE_API_KEY", "AZURE_API_BASE", "VERTEXAI_PROJECT", "AWS_REGION")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models build only where their key is present."""
    for name in KEYS:
        monkeypatch.setenv(name, "not-a-real-key")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lineage that has a session to be replayed."""
    path = tmp_path_factory.mktemp("recorded") / "lineage.git"
    lineage = Lineage(path, "fp8_gemm")
    lineage.session("")
    lineage.close()
    return path


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_builds(group: str, option: str, recorded: Path) -> None:
    if option in ("replay", "recorded"):
        cfg = compose(["llm=replay", f"lineage.path={recorded}", f"{group}={option}"])
        assert all(build(cfg[part]) for part in ("selector", "designer", "writer", "digester", "evaluator", "recorded"))
        return
    model = ["model=dummy"] if option in ("llm", "mix", "rewrite", "diff") else []
    cfg = compose([f"{group}={option}", *model])
    for part in ("selector", "designer", "writer", "digester", "problem", "target", "loop"):
        assert build(cfg[part]) is not None
    assert "_target_" in cfg.evaluator


def test_every_problem_folder_has_an_option() -> None:
    folders = {file.parent.name for file in shipped("problems").glob("*/problem.yaml")}
    assert folders == {option for group, option in OPTIONS if group == "problem"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llm=gemni"], r"no option llm=gemni; did you mean gemini\? valid: .*offline"),
        (["designr=tune"], r"no key or group 'designr'; did you mean designer\? valid: .*writer"),
        (["loop.evalutions=5"], r"no key loop.evalutions .*did you mean evaluations\? valid: .*minutes"),
        (["problem.case=tests"], r"no key problem.case .*did you mean cases\?"),
        (["writer=llm", "model=dummy", "writer.lm.temprature=1"], r"no key writer.lm.temprature .*temperature"),
        (["lineage.pth=x"], r"no key lineage.pth.*did you mean path\?"),
        (["designer=tune,random"], r"Ambiguous value|sweep"),
        (["loop.evaluations=abc"], "loop.evaluations=abc"),
        (["evaluator=recorded"], "evaluator=recorded repeats a recorded run: use llm=replay"),
        (["llm=dummy", "model=replay"], "model=replay repeats a recorded run: use llm=replay"),
        (["loop.stages.writr.usd=3"], r"loop.stages.writr: .*selector, designer, writer"),
        (["loop.stages.writer.dollars=3"], r"loop.stages.writer.dollars: valid kinds: usd, tokens"),
        (["loop.repeats=never"], "loop.repeats=never; valid: show, skip, judge"),
        (["problem=softmax", "problem.cases=big"], "no case set 'big'"),
    ],
)
def test_a_mistyped_word_is_answered_in_one_line(arguments: list[str], message: str) -> None:
    def composed_and_built() -> None:
        cfg = compose(arguments)
        build(cfg.problem), build(cfg.loop), build(cfg.writer), build(cfg.evaluator)

    with pytest.raises(ConfigError, match=message) as caught:
        composed_and_built()
    assert "\n" not in str(caught.value)


def test_parameters_the_yaml_does_not_list_can_be_set() -> None:
    assert build(compose(["loop.evaluations=3"]).loop).caps["evaluations"] == 3
    assert build(compose(["problem.cases=tests"]).problem).benchmarks[0].name == "64x64x128"


def test_the_command_line_wins_over_a_preset() -> None:
    cfg = compose(["llm=gemini", "selector=tournament"])
    assert cfg.selector._target_.endswith("tournament.Tournament")
    assert cfg.writer._target_.endswith("Rewrite")
    assert "gemini" in cfg.writer.lm.provider


def test_one_stage_can_have_its_own_model() -> None:
    cfg = compose(["llm=gemini", "model@writer.lm=openai", "designer.lm.temperature=0.25"])
    assert "gemini" in cfg.designer.lm.provider
    assert "openai" in cfg.writer.lm.provider
    assert cfg.designer.lm.temperature == 0.25


def test_a_models_parameter_reaches_every_stage_that_uses_it() -> None:
    cfg = compose(["llm=gemini", "model@writer.lm=openai", "model.temperature=0.5", "selector.lm.temperature=0.1"])
    assert (cfg.designer.lm.temperature, cfg.selector.lm.temperature) == (0.5, 0.1)
    assert cfg.writer.lm.get("temperature") != 0.5


def test_a_users_folder_adds_options(tmp_path: Path) -> None:
    (tmp_path / "selector").mkdir()
    (tmp_path / "selector" / "mine.yaml").write_text("_target_: ksflow.stages.selector.fastest.Fastest\n")
    cfg = compose(["--config-dir", str(tmp_path), "selector=mine"])
    assert build(cfg.selector) is not None
