"""Every option of every group composes and builds, and a mistyped word is answered with the valid ones."""

from pathlib import Path

import pytest

from ksflow.config.compose import build, compose
from ksflow.config.members import Suite, members
from ksflow.errors import ConfigError
from ksflow.home import shipped_path
from ksflow.lineage import Lineage

OPTIONS = sorted(
    (folder.name, file.stem)
    for folder in shipped_path("conf").iterdir()
    if folder.is_dir()
    for file in folder.glob("[!_]*.yaml")
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
    lineage.open_session("")
    lineage.close()
    return path


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_builds(group: str, option: str, recorded: Path) -> None:
    if option in ("replay", "recorded"):
        cfg = compose(["llm=replay", f"lineage.path={recorded}", f"{group}={option}"])
        assert all(build(cfg[part]) for part in ("selector", "designer", "writer", "digester", "evaluator", "recorded"))
        return
    if group == "suite":
        assert compose([f"{group}={option}"], "suite").suite is not None
        return
    if group == "problem" and not shipped_path("problems", option).is_dir():
        assert compose([f"{group}={option}"]).problem._target_.startswith("ksflow.formats.")
        return  # another project's format: it needs a checkout, and has tests of its own
    model = ["model=dummy"] if option in ("llm", "mix", "rewrite", "diff", "verified") else []
    model += ["writer=verified"] if group == "verifier" else []
    agent = ["agent=claude"] if option == "agent" else []
    cfg = compose([*model, *agent, f"{group}={option}"])
    for part in ("selector", "designer", "writer", "digester", "problem", "target", "loop"):
        assert build(cfg[part]) is not None
    assert "_target_" in cfg.evaluator


@pytest.mark.slow
@pytest.mark.parametrize("text", ["2026_11_28", "1e3", "1.50", "007", "+5", "true", "NaN", "3", "null"])
def test_text_is_kept_as_it_was_typed(text: str, tmp_path: Path) -> None:
    cfg = compose(
        ["llm=dummy", f"run={text}", f"lineage.path={text}", f"model.name={text}", f"writer.llm.lm.key={text}"]
    )
    assert [cfg.run, cfg.lineage.path, cfg.selector.lm.name, cfg.writer.llm.lm.key] == [text] * 4
    none_or_text = None if text == "null" else text
    cfg = compose([f"inherit={text}", f"language={text}", f"problem.path={text}", f"seed_kernels=[{text},b.cpp]"])
    assert [cfg.inherit, cfg.language, cfg.seed_kernels[0]] == [none_or_text] * 3
    assert cfg.problem.path == text
    several = members(Suite(name="all"), [f"problem.path={text},b", f"run={text}"])
    assert compose([*several[0].words]).problem.path == text
    (tmp_path / "designer").mkdir()
    part = "def design(*about, tag: str = ''): ...\n"
    (tmp_path / "mydesigner.py").write_text(part, encoding="utf-8")
    (tmp_path / "designer" / "mine.yaml").write_text("_target_: mydesigner.design\n_partial_: true\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        own = compose([f"--config-dir={tmp_path}", "designer=mine", f"designer.tag={text}"])
    assert own.designer.tag == text


def test_an_agents_keys_reach_the_stages_that_start_it() -> None:
    words = ["writer=agent", "designer=agent", "agent=claude", "agent.minutes=3", "agent.checks=1", "agent.box=false"]
    cfg = compose([*words, "agent.environment=[MY_KEY]", "writer.lm.checks=2"])
    engines = [build(cfg[stage].lm).engine for stage in ("writer", "designer")]
    held = [(engine.minutes, tuple(engine.environment), engine.box) for engine in engines]
    assert held == [(3, ("MY_KEY",), False)] * 2
    assert [engine.checks for engine in engines] == [2, 1]
    own = compose(["writer=agent", "agent=command", "agent.command=[sh,-c,'true']"])
    assert build(own.writer.lm).engine.command == ["sh", "-c", "true"]
    with pytest.raises(ConfigError, match=r"agent.minutes= would be read by nothing: .* add writer=agent"):
        compose(["agent=claude", "agent.minutes=3"])


def test_numbers_are_numbers_however_they_are_typed() -> None:
    cfg = compose(
        ["llm=dummy", "loop.usd=1e3", "loop.minutes=1_0", "model.options.top_p=1e-3", "model.temperature=1.50"]
    )
    assert (cfg.loop.usd, cfg.loop.minutes, cfg.writer.llm.lm.options.top_p, cfg.writer.llm.lm.temperature) == (
        1000,
        10,
        1e-3,
        1.5,
    )


def test_every_problem_folder_has_an_option() -> None:
    folders = {file.parent.name for file in shipped_path("problems").glob("*/problem.yaml")}
    assert folders <= {option for group, option in OPTIONS if group == "problem"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llm=gemni"], r"no option llm=gemni; did you mean gemini\? valid: .*offline"),
        (["evaluations=3"], r"no key or group 'evaluations'; did you mean loop.evaluations\? valid: .*writer"),
        (["designr=tune"], r"no key or group 'designr'; did you mean designer\? valid: .*writer"),
        (["loop.evalutions=5"], r"^no key loop.evalutions; did you mean loop.evaluations\? valid: .*minutes"),
        (["problem.case=tests"], r"no key problem.case; did you mean problem.cases\?"),
        (
            ["writer=llm", "model=dummy", "writer.lm.temprature=1"],
            r"no key writer.lm.temprature; .*writer.lm.temperature",
        ),
        (["lineage.pth=x"], r"no key lineage.pth.*did you mean lineage.path\?"),
        (["designer=tune,random"], r"Ambiguous value|sweep"),
        (["loop.evaluations=abc"], "loop.evaluations=abc"),
        (["evaluator=recorded"], "evaluator=recorded repeats a recorded run: use llm=replay"),
        (["llm=dummy", "model=replay"], "model=replay repeats a recorded run: use llm=replay"),
        (["loop.stages.writr.usd=3"], r"loop.stages.writr: .*selector, designer, writer"),
        (["loop.stages.writer.dollars=3"], r"loop.stages.writer.dollars: valid kinds: usd, tokens"),
        (["loop.stages=3"], r"loop.stages=3 must be keys with values, such as loop.stages.KEY.KEY=VALUE"),
        (["target=h200", "target.peaks=3"], "target.peaks=3 must be keys with values, such as target.peaks.KEY=VALUE"),
        (
            ["target=h200", "target.peaks=[3]"],
            r"target.peaks=\[3\] is of another shape .*are written target.peaks.KEY=V",
        ),
        (["loop=3"], "loop=3 does not say which of its keys is meant: loop.KEY=; keys: evaluations, rounds, minutes"),
        (["loop.repeats=never"], "loop.repeats=never; valid: show, skip, judge"),
        (["problem=softmax", "problem.cases=big"], "no case set 'big'"),
        (["verifier=llm"], "verifier= goes with a writer that asks one: writer=verified"),
        (["desinger.seed=1"], r"no key or group 'desinger'; did you mean designer\?"),
        (["suite.usd=5"], r"suite.usd= would be read by nothing: no part 'suite' here; valid: designer"),
        (["problem=null"], r"no option problem=null; valid: .*softmax"),
        (["problem="], r"no option problem=; valid: .*softmax"),
        (["designer=rules", "designer.experiments=many"], "designer.experiments=many must be a number"),
        (["random_seed=abc"], "designer.seed=abc must be a number"),
        (["loop.repairs=two"], "loop.repairs=two must be a number"),
        (["llm=dummy", "model.temperature=hot"], "selector.lm.temperature=hot must be a number, or null"),
        (["llm=dummy", "model.stream=often"], "selector.lm.stream=often must be true or false"),
        (
            ["~designer"],
            "~designer takes away what every run reads; leave it out, or say designer=ANOTHER of agent, llm, mix",
        ),
        (["problem.cases=3"], "no case set '3'; valid: auto, cpu"),
        (["problem.path=3"], "no problem.yaml in 3"),
        (["problem.seeds=3"], r"problem.seeds=3 must be a list, such as problem.seeds=\[A,B\]"),
        (["problem.seeds=absent.cpp"], r"problem.seeds=\['absent.cpp'\]: .* 02_ikj.cpp"),
        (["problem", "show"], "'problem' is not key=value; a command's words come first"),
        (["llm=replay", "recorded=mine"], r"recorded=mine: a run's name goes into recorded.run=mine"),
        (["loop.usd=5", "again"], "'again' is not key=value; a command's words come first"),
        (["problem=softmax", "loop.evaluations"], "^loop.evaluations needs a value: loop.evaluations=VALUE"),
        (["--loop.evaluations", "4"], "^--loop.evaluations is no flag: write loop.evaluations=4"),
        (["--llm=dummy"], "^--llm is no flag: write llm=dummy"),
        (["problem=my_rsm"], r"no option problem=my_rsm; did you mean my_rms\? valid: .*my_rms.*softmax"),
        (["problem=./my_rsm"], r"no problem.yaml in ./my_rsm; did you mean my_rms\? valid: .*my_rms.*softmax"),
    ],
)
def test_a_mistyped_word_is_answered_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rms").mkdir()
    (tmp_path / "my_rms" / "problem.yaml").touch()

    def composed_and_built() -> None:
        cfg = compose(arguments)
        build(cfg.problem), build(cfg.loop), build(cfg.writer), build(cfg.evaluator)

    with pytest.raises(ConfigError, match=message) as caught:
        composed_and_built()
    assert "\n" not in str(caught.value)


def test_a_folder_of_configs_may_follow_an_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "designer").mkdir()
    (tmp_path / "designer" / "mine.yaml").write_text(
        "_target_: ksflow.stages.designer.rules.RulesDesigner\nexperiments: 4\n"
    )
    assert compose([f"--config-dir={tmp_path}", "designer=mine"]).designer.experiments == 4


def test_a_part_of_ones_own_that_lacks_a_setting_names_it(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine.yaml").write_text(
        "_target_: ksflow.kernels.hardware.target.from_data_sheet\nname: mine\nmarch: sm_90a\n"
    )
    with pytest.raises(
        ConfigError,
        match=r"target lacks chip, peaks, which "
        r"ksflow\.kernels\.hardware\.target\.from_data_sheet needs; valid: name, chip",
    ):
        compose(["--config-dir", str(tmp_path), "target=mine"])


def test_a_part_that_is_none_and_a_folder_that_is_not_there_are_said(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine.yaml").write_text("_target_: ksflow.kernels.hardware.target\n")
    with pytest.raises(
        ConfigError, match=r"target._target_=ksflow.kernels.hardware.target cannot be called; name a class or a func"
    ):
        compose(["--config-dir", str(tmp_path), "target=mine"])
    with pytest.raises(ConfigError, match=r"--config-dir .*absent is no folder"):
        compose(["--config-dir", str(tmp_path / "absent")])
    for words in (["--config-dir"], ["--config-dir="]):
        with pytest.raises(ConfigError, match="--config-dir needs the folder"):
            compose(words)


def test_a_run_that_a_sweep_named_is_said_as_it_is_printed() -> None:
    cfg = compose(["run=designer=tune,selector=random", "inherit=softmax/designer=tune"])
    assert (cfg.run, cfg.inherit) == ("designer=tune,selector=random", "softmax/designer=tune")


def test_parameters_the_yaml_does_not_list_can_be_set() -> None:
    assert build(compose(["loop.evaluations=3"]).loop).caps["evaluations"] == 3
    assert build(compose(["problem.cases=tests"]).problem).benchmarks[0].name == "64x64x128"


def test_the_command_line_wins_over_a_preset() -> None:
    cfg = compose(["llm=gemini", "selector=tournament"])
    assert cfg.selector._target_.endswith("tournament.Tournament")
    assert cfg.writer.llm._target_.endswith("LlmWriter")
    assert "gemini" in cfg.writer.llm.lm.provider
    assert cfg.writer.tune._target_.endswith("Tune")  # what changes numbers alone asks no model
    assert compose(["llm=gemini", "writer=llm"]).writer._target_.endswith("LlmWriter")


def test_one_stage_can_have_its_own_model() -> None:
    cfg = compose(["llm=gemini", "model@writer.llm.lm=openai", "designer.lm.temperature=0.25"])
    assert "gemini" in cfg.designer.lm.provider
    assert "openai" in cfg.writer.llm.lm.provider
    with pytest.raises(ConfigError, match=r"no place model@writer.lm here; valid: .*, model@writer.llm.lm$"):
        compose(["llm=gemini", "model@writer.lm=openai"])
    assert cfg.designer.lm.temperature == 0.25


def test_a_models_parameter_reaches_every_stage_that_uses_it() -> None:
    cfg = compose(["llm=gemini", "model@writer.llm.lm=openai", "model.temperature=0.5", "selector.lm.temperature=0.1"])
    assert (cfg.designer.lm.temperature, cfg.selector.lm.temperature) == (0.5, 0.1)
    assert cfg.writer.llm.lm.get("temperature") != 0.5


def test_a_users_folder_adds_options(tmp_path: Path) -> None:
    (tmp_path / "selector").mkdir()
    (tmp_path / "selector" / "mine.yaml").write_text("_target_: ksflow.stages.selector.fastest.Fastest\n")
    cfg = compose(["--config-dir", str(tmp_path), "selector=mine"])
    assert build(cfg.selector) is not None
