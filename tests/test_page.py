"""A run as a page: every figure is the lineage's, hostile words stay words, and a browser can be led through it."""

import difflib
import html
import json
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import accepted, again, draft, kernel, plant, until
from test_cli import DRY, ksflow
from test_session import Run

from ksflow.errors import ConfigError
from ksflow.home import PACKAGE
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.records import (
    CheckedCase,
    Comparison,
    Explanation,
    Feature,
    Origin,
    Presence,
    Statement,
    TimedCase,
    Trial,
    base_of,
)
from ksflow.report.headline import Headline
from ksflow.report.page import RunFacts, as_html, as_markdown, as_png, as_pull_request, run_facts, split_details
from ksflow.report.page.details import _diff
from ksflow.report.page.facts import _story
from ksflow.report.words import percent

HOSTILE = "</script><script>document.title = 'mine'</script><img src=x onerror=\"document.title = 'mine'\"> | **x**"


@pytest.fixture
def run(lineage: Lineage) -> Lineage:
    """A run with a few trials, one of which has words that would like to be markup."""
    outcome = Run(lineage)(evaluations=6)
    last = max((t for t in outcome.population.trials if t.experiment), key=lambda trial: trial.id)
    assert last.evaluation
    lineage.evaluate(replace(last, evaluation=replace(last.evaluation, reason="")))
    return lineage


def test_every_figure_is_the_lineages(run: Lineage) -> None:
    facts, population = run_facts(run), run.population()
    assert [row["id"] for row in facts["trials"]] == sorted(trial.id for trial in run.all_trials())
    for row in facts["trials"]:
        trial = population.by_id[row["id"]]
        assert row["us"] == pytest.approx(trial.score_us)
        assert (row["parents"], row["verdict"]) == (list(trial.parents), trial.verdict)
    assert population.best is not None
    assert facts["winner"] == population.best.id
    assert facts["trials"][-1]["best_us"] == population.best.score_us
    assert facts["cases"][0]["us"] == population.best.evaluation.timings[0].us  # type: ignore[union-attr]
    assert facts["story"][-1]["id"] == population.best.id
    assert facts["spent"]["usd"] == run.total_cost().usd
    assert facts["winner_commit"] == run.commit_of(population.best.id)
    json.dumps(facts, allow_nan=False)


def test_what_does_not_change_is_worked_out_once_and_what_does_is_seen(run: Lineage) -> None:
    for trial in run.all_trials():  # nothing says on which scale a time is
        if trial.evaluation:
            run.evaluate(replace(trial, evaluation=trial.evaluation.with_evidence(against=(), claim=None)))
    facts = RunFacts(run)
    before = facts.read()
    assert facts.read() == before
    assert all(facts.read()["details"][name] is details for name, details in before["details"].items())
    changed = max((t for t in run.all_trials() if t.experiment), key=lambda trial: trial.id)
    assert changed.evaluation
    run.evaluate(replace(changed, evaluation=replace(changed.evaluation, score_us=0.25)))
    after = facts.read()
    assert after["trials"][-1]["us"] == 0.25
    assert after == run_facts(again(run))
    kept = [name for name in before["details"] if after["details"][name] is before["details"][name]]
    assert len(kept) == len(before["details"]) - 1


def test_a_change_is_shown_as_difflib_has_it() -> None:
    old = [f"{number}\n" for number in range(40)]
    for new in (
        [*old[:20], "x\n", *old[20:]],
        old[:3] + old[30:],
        ["x\n", *old],
        [*old, "x\n"],
        old[1:],
        [],
        old[::-1],
    ):
        assert list(_diff(old, new, "a", "b")) == list(difflib.unified_diff(old, new, "a", "b"))


def test_a_page_names_nothing_that_would_be_fetched(run: Lineage) -> None:
    page = as_html([run_facts(run)])
    own = html.unescape(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    assert not re.search(r"(?:src|href)\s*=|url\(|@import", own)
    assert "connect-src 'none'" in own


def _luminance(colour: str) -> float:
    """Relative luminance of `#rgb` or `#rrggbb`, as WCAG 2 defines it."""
    whole = colour[1:] if len(colour) == 7 else "".join(2 * letter for letter in colour[1:])
    parts = (int(whole[at : at + 2], 16) / 255 for at in (0, 2, 4))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_text_can_be_read_on_every_ground_in_both_colour_schemes() -> None:
    style = (PACKAGE / "report" / "page" / "page.css").read_text()
    schemes = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", style)]
    assert len(schemes) == 2
    grounds = {"ink": ("paper", "card", "code"), "quiet": ("paper", "card", "code"), "mark": ("paper", "card")}
    grounds |= {"good": ("card", "code"), "bad": ("card", "code")}
    for scheme in schemes:
        for text, behind in ((text, ground) for text, each in grounds.items() for ground in each):
            light = sorted(_luminance(scheme[name]) + 0.05 for name in (text, behind))
            assert light[1] / light[0] >= 4.5, (text, behind)  # WCAG 2, level AA


def test_where_and_when_it_was_judged_is_told_in_words(lineage: Lineage) -> None:
    seed = plant(lineage, "int x;\n", 9.0)
    assert seed.evaluation
    assert run_facts(lineage)["trust"]["machine"] == seed.evaluation.target  # of a record that has no more
    told = seed.evaluation.with_evidence(device="AMD EPYC", cores={"judge": [0], "box": 1})
    lineage.evaluate(replace(seed, evaluation=told))
    trust = run_facts(lineage)["trust"]
    assert (trust["machine"], trust["date"]) == ("AMD EPYC, 2 cores", "14 November 2023")
    assert "judged on AMD EPYC, 2 cores, 14 November 2023" in as_markdown(run_facts(lineage))


def test_a_pytorch_baseline_has_a_figure_of_its_own_beside_what_the_claim_is_over(lineage: Lineage) -> None:
    slow, torch = plant(lineage, "int x;\n", 90.0), plant(lineage, "int y;\n", 20.0)
    for seed, name in ((slow, "00_numpy.py"), (torch, "01_torch.py")):
        lineage.evaluate(replace(seed, name=name, baseline=True))
    rows = [(slow.id, 1.5), (torch.id, 2.0)]
    versus = tuple(Comparison(id=id, speedup=ratio, low=ratio - 0.1, high=ratio + 0.1) for id, ratio in rows)
    (winner,) = lineage.dispatch([draft(slow.id)])
    winner = lineage.write(replace(winner, kernel=kernel("int z;\n")))
    lineage.evaluate(replace(winner, evaluation=accepted(10.0).with_evidence(against=versus)))
    assert [(one["name"], one["speedup"]) for one in run_facts(lineage)["over"]] == [("NumPy", 1.5), ("PyTorch", 2.0)]


def test_a_doubt_is_told_once_in_a_headline(lineage: Lineage) -> None:
    torch = replace(plant(lineage, "int y;\n", 20.0), name="01_torch.py")
    row = Comparison(id=torch.id, speedup=1.5, low=1.4, high=1.6071, ranked=False, why="busy")
    best = plant(lineage, "int z;\n", 10.0)
    assert best.evaluation
    lineage.evaluate(replace(best, evaluation=best.evaluation.with_evidence(against=(row,))))
    told = Headline(lineage.last_population.by_id[best.id], lineage.population(), torch)
    assert told.claim == "not ranked over PyTorch: x1.5 [1.4, 1.61], busy"


def test_what_the_newest_session_used_of_its_budgets_is_told(lineage: Lineage) -> None:
    Run(lineage)(evaluations=6)
    session = run_facts(lineage)["session"]
    assert session["caps"]["evaluations"] == 60  # its settings are not on record: as the loop has it by itself
    assert session["used"]["evaluations"] == sum(one.origin is not Origin.SEED for one in lineage.all_trials())
    later = Lineage(lineage.store.path, lineage.problem, lineage.run, clock=lambda: 1_700_000_100)
    later.open_session("settings: {loop: {evaluations: 9, minutes: 4, usd: null, rng: '${random_seed}'}}")
    session = run_facts(later)["session"]
    later.close()
    assert session["began"] == 1_700_000_100
    assert session["caps"] == {"evaluations": 9, "minutes": 4}
    assert session["used"] == {"evaluations": 0, "usd": 0}


def test_the_time_between_two_calls_is_no_work(tmp_path: Path) -> None:
    now = [1_700_000_000]
    made = Lineage(tmp_path / "lineage.git", "toy", clock=lambda: now[0])
    for number in range(2):
        made.open_session("")
        for text in ("a", "b"):
            now[0] += 90
            plant(made, f"int {text}{number};\n", 5.0)
        now[0] += 2_400
    assert [row["minutes"] for row in run_facts(made)["trials"]] == [1.5, 3.0, 4.5, 6.0]
    made.close()


def test_a_run_without_a_winner_names_the_baseline_in_the_winner_s_place(lineage: Lineage) -> None:
    (seed,) = lineage.add_seeds([Trial("", Origin.SEED, kernel=kernel("x"), name="00_numpy.py", baseline=True)])
    lineage.evaluate(replace(seed, evaluation=accepted(90.0)))
    facts = run_facts(lineage)
    assert (facts["winner"], facts["best"], facts["best_name"]) == ("", seed.id, "NumPy")
    text = as_markdown(facts)
    assert re.search(r"^\| case \| NumPy µs \|", text, re.MULTILINE), text
    assert not re.search(r"(?<!no )winner", text), text
    assert as_pull_request(lineage, load("softmax", "cpu")) == f"## {facts['headline']}\n"


def test_markdown_has_the_claim_the_cases_and_the_story(run: Lineage) -> None:
    facts = run_facts(run)
    facts["story"].append({"id": facts["trials"][-1]["id"], "idea": HOSTILE, "came": [], "beside": []})
    facts["explanation"] = [f"matrix cores present {HOSTILE}"]
    text = as_markdown(facts)
    assert facts["winner_commit"] in text
    assert "- matrix cores present \\<" in text
    assert re.search(r"^\| case \| winner µs \|", text, re.MULTILINE)
    assert "<script>" not in text
    assert "\\*\\*x\\*\\*" in text


def test_the_calls_of_a_function_are_no_model(run: Lineage, tmp_path: Path) -> None:
    table = {"title": "filters:smooth: 23 calls", "remarks": [], "rows": [["calls", "is"], ["7", "a case"]]}
    for function, heading in (
        ({"function": "filters:smooth"}, "The calls that were watched"),
        ({}, "The model by its"),
    ):
        (tmp_path / "region.json").write_text(json.dumps({**function, "profile": table}))
        text = as_markdown(RunFacts(run, replace(load("softmax", "cpu"), root=str(tmp_path))).read())
        assert re.search(rf"^{heading}.*: filters:smooth: 23 calls$", text, re.MULTILINE), text


def test_only_a_step_within_the_margin_is_a_tie(lineage: Lineage) -> None:
    """A gain of x30 that was not ranked is none."""
    ids = [plant(lineage, "int x;\n", 90.0).id]
    for number, (ratio, ranked) in enumerate(((30.0, False), (1.0, False), (1.0, True), (1.5, True))):
        (step,) = lineage.dispatch([draft(ids[-1])])
        row = Comparison(id=ids[-1], speedup=ratio, low=ratio / 1.005, high=ratio * 1.005, ranked=ranked)
        made = lineage.write(replace(step, kernel=kernel(f"int x{number};\n")))
        lineage.evaluate(replace(made, evaluation=accepted(9.0).with_evidence(against=(row,))))
        ids.append(step.id)
    best = lineage.population().by_id[ids[-1]]
    steps = _story(Headline(best, lineage.population()), {})
    assert [step["tie"] for step in steps] == [False, False, True, True, False]


def test_a_pull_request_has_an_interval_for_each_shape_over_each_baseline(lineage: Lineage) -> None:
    first = ""
    for number, us in enumerate((20.0, 10.0)):
        timed = TimedCase(case="8x8", us=us, interval_us=(0.99 * us, 1.01 * us))
        checked = CheckedCase(case="8x8", seeds=(1, 2), worst=0.25, errors=((1e-6, 1e-3),))
        verdict = accepted(us).with_evidence(timed=(timed,), checked=(checked,))
        if number:
            row = Comparison(id=first, speedup=2.0, low=1.9, high=2.1)
            verdict = verdict.with_evidence(against=(row,))
        seed = Trial(
            "", Origin.SEED, kernel=kernel(f"int n{number};\n"), name=f"0{number}_numpy.py", baseline=not number
        )
        (seed,) = lineage.add_seeds([seed])
        first = first or seed.id
        lineage.evaluate(replace(seed, evaluation=verdict))
    text = as_pull_request(lineage, load("softmax"))
    assert "over NumPy" in text
    assert re.search(r"^\| 8x8 \| 10 \\\[9.9, 10.1\\\] \| 20, x2 \\\[1.97, 2.03\\\] \|$", text, re.MULTILINE), text
    assert "- 8x8: 0.25 of the bound; largest absolute error 1e-06, 2 draws" in text
    assert "### Licence\n\nApache-2.0." in text
    assert re.search(r"^ksflow verify toy/main 0000\d$", text, re.MULTILINE), text  # the run, and its winner


def test_what_a_kernel_does_is_told_with_the_trial_and_the_story(run: Lineage) -> None:
    best = run.population().best
    assert best
    assert best.kernel
    fact = Feature("matrix cores", Presence.PRESENT, ("kernel.cpp:1",))
    said = Statement("It has none.", ("kernel.cpp:1",), "matrix cores", Presence.ABSENT)
    run.explain(best, Explanation(best.kernel.digest, "1", (fact,), "a model", "Short.", (said,)))
    facts = run_facts(run)
    assert facts["story"][-1]["features"] == "matrix cores"
    assert "CONTRADICTS THE FACTS: matrix cores is present" in facts["details"][best.id]["explanation"]
    text = as_markdown(facts)
    assert "   Has matrix cores." in text
    assert "- It has none. \\[kernel.cpp:1\\] CONTRADICTS" in text


@pytest.fixture
def dry(tmp_path: Path) -> Path:
    """A folder with a run that the command line made."""
    done = ksflow(tmp_path, *DRY, "loop.evaluations=6")
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_commands_write_it_and_name_what_is_wrong(dry: Path) -> None:
    done = ksflow(dry, "report", *DRY)
    assert done.returncode == 0, done.stderr
    assert "winner" in (dry / "runs/reports/softmax/dry.html").read_text()
    both = ksflow(dry, "report", *DRY, "run=dry,dry", "format=md", "out=page.md")
    assert both.returncode == 0, both.stderr
    assert (dry / "page.md").read_text().count("How it came about") == 2
    for words, said in (
        (["format=pdf"], "html, md, png"),
        (["run=nobody"], "no trial of"),
        (["now"], "key=value"),
    ):
        wrong = ksflow(dry, "report", *DRY, *words)
        assert (wrong.returncode, said in wrong.stderr) == (2, True), wrong.stderr


def test_a_picture_needs_a_browser_and_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs one of chromium, .*: apt install chromium, or take format=html"):
        as_png("<p>")
    said = tmp_path / "chromium"
    said.write_text("#!/bin/sh\necho no display >&2\n")
    said.chmod(0o700)
    with pytest.raises(ConfigError, match="chromium drew nothing: no display; format=html needs none"):
        as_png("<p>")


def test_a_browser_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "chromium").write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/child\nwait\n")
    (tmp_path / "chromium").chmod(0o700)
    with pytest.raises(ConfigError, match="took longer than 1 s; format=html needs none"):
        as_png("<p>", patience_s=1.0)
    child = int((tmp_path / "child").read_text())
    until(lambda: not _runs(child))


def _runs(process: int) -> bool:
    """Whether it is there and no zombie."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_picture_is_the_first_screen(dry: Path) -> None:
    if not Path("/usr/bin/chromium").exists():
        pytest.skip("needs Debian's chromium")
    done = ksflow(dry, "report", *DRY, "format=png")
    assert done.returncode == 0, done.stderr
    data = (dry / "runs/reports/softmax/dry.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (2560, 2400)
    chunks, at = b"", 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        chunks += data[at + 8 : at + 8 + size] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += size + 12
    assert len(set(zlib.decompress(chunks))) > 100  # a blank one has a handful


@pytest.fixture
def served(dry: Path) -> Iterator[str]:
    """The address of the live page of a run."""
    command = [sys.executable, "-m", "ksflow", "watch", *DRY]
    with subprocess.Popen(command, cwd=dry, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield server.stdout.readline().split()[0]
        server.terminate()


def go_on(dry: Path) -> None:
    assert ksflow(dry, *DRY, "loop.evaluations=4").returncode == 0


@pytest.mark.slow
def test_the_live_page_follows_the_lineage(dry: Path, served: str) -> None:
    def newest() -> dict[str, Any]:
        return dict(httpx.get(f"{served}facts.json").json())

    before = newest()
    assert newest()["stamp"] == before["stamp"]
    go_on(dry)
    after = newest()
    assert after["stamp"] > before["stamp"]
    assert len(after["runs"][0]["trials"]) > len(before["runs"][0]["trials"])
    assert httpx.get(served, headers={"Host": "elsewhere.example"}).status_code == 403
    assert httpx.get(f"{served}etc/passwd").status_code == 404


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """Headless Chromium, which .ci/run installs."""
    if not Path("/usr/bin/chromedriver").exists():
        pytest.skip("needs Debian's chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = "/usr/bin/chromium"
    quiet = ("background-networking", "component-update", "sync", "quic")
    for word in (
        "headless",
        "no-sandbox",
        "no-first-run",
        "window-size=1200,900",
        *(f"disable-{one}" for one in quiet),
    ):
        options.add_argument(f"--{word}")
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def fetched(browser: Any) -> list[str]:
    """What the page asked for, itself aside."""
    said = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    urls = (one["params"]["request"]["url"] for one in said if one["method"] == "Network.requestWillBeSent")
    return [url for url in urls if url.startswith(("http", "ws"))]


def errors(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def opened(browser: Any, page: str, tmp_path: Path, wide: int = 1440) -> None:
    """Open a page from disk in a window of that width, as a phone would have it where that is narrow."""
    (tmp_path / "page.html").write_text(page)
    metrics = {"width": wide, "height": 900, "deviceScaleFactor": 1, "mobile": wide < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((tmp_path / "page.html").as_uri())


_MARKS = """
return [...document.querySelectorAll("#chart .mark")].map(path => (path.getAttribute("d").match(/M/g) ?? []).length)
"""
"""How many trials are drawn, by their kind."""


def many(facts: dict[str, Any], count: int) -> dict[str, Any]:
    """The same run with so many trials, each with a source and an evidence of its own."""
    shown = [row for row in facts["trials"] if row["parents"]]
    added = {}
    for number in range(len(facts["trials"]), count):
        like = shown[number % len(shown)]
        id = f"{number + 1:05}"
        times = {"us": like["us"] and like["us"] * (1 + number % 97 / 50), "at": (like["at"] or 0) + number}
        idea = f"{like['idea']}: {number * 7919 % 10007} instead of {number * 104729 % 10009}"
        added[id] = like | times | {"id": id, "parents": [shown[number % 2]["id"], shown[0]["id"]], "idea": idea}
    details = {id: facts["details"][shown[0]["id"]] | {"diff": f"-{id}\n+{row['idea']}\n"} for id, row in added.items()}
    return facts | {"trials": [*facts["trials"], *added.values()], "details": {**facts["details"], **details}}


def test_a_page_is_small_whatever_the_run(run: Lineage) -> None:
    facts = run_facts(run)
    assert len(as_html([many(facts, 20)]).encode()) < 150_000
    assert len(as_html([many(facts, 1000)]).encode()) < 1_500_000
    long = many(facts, 5000)
    assert len(as_html([long]).encode()) < 4_000_000
    for id, details in long["details"].items():
        details["diff"] = "\n".join(f"+  y[{number}] = x[{id} * {number}];" for number in range(200))
    assert len(as_html([long]).encode()) < 4_000_000
    (told,) = split_details([long])[1]
    assert not told[facts["winner"]].get("left_out")
    assert sum(bool(one.get("left_out")) for one in told.values()) > 1000


@pytest.mark.slow
def test_a_click_on_the_chart_shows_the_trial_and_pointing_at_it_where_it_came_from(
    run: Lineage, browser: Any, tmp_path: Path
) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    facts = run_facts(run)
    last = facts["trials"][-1]
    hostile = {"idea": HOSTILE, "why": HOSTILE}
    last |= hostile
    facts["story"][-1] |= hostile | {"features": HOSTILE}
    facts["details"][last["id"]] |= hostile | {"explanation": HOSTILE}
    facts["notes"] = [{"title": HOSTILE, "text": HOSTILE, "sources": [HOSTILE], "status": "measured"}]
    opened(browser, as_html([facts, {**facts, "run": "other"}]), tmp_path)
    assert sum(browser.execute_script(_MARKS)) == len(facts["trials"])
    chart = browser.find_element("id", "chart")
    place = browser.execute_script(
        "arguments[0].scrollIntoView({ block: 'center' }); const box = arguments[0].getBoundingClientRect();"
        "return [POINTS.at(-1)[0] + box.x, POINTS.at(-1)[1] + box.y]",
        chart,
    )
    mouse = ActionChains(browser)
    mouse.w3c_actions.pointer_action.move_to_location(*map(round, place))
    mouse.perform()
    tip = browser.find_element("id", "tip")
    assert tip.text.startswith(last["id"])
    assert len(browser.find_elements("css selector", "#hover path")) == len(last["parents"])
    ActionChains(browser).click().perform()
    text = until(lambda: browser.find_element("id", "trial").text)
    assert text.startswith(last["id"])
    assert HOSTILE in text
    evidence = facts["details"][last["id"]]["evidence"]
    assert evidence["head"][0] in text
    assert all(row["case"] in text for row in evidence["tables"][0])
    away = ActionChains(browser)
    away.w3c_actions.pointer_action.move_to_location(1, 1)
    away.perform()
    chart.send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
    assert until(lambda: browser.find_element("css selector", "#trial h3").text.startswith(facts["trials"][0]["id"]))
    assert "other" in browser.execute_script("return document.getElementById('compared').textContent")
    assert "mine" not in browser.title
    assert not fetched(browser)
    assert not errors(browser)


@pytest.mark.slow
def test_a_long_run_is_drawn_with_as_few_elements_as_a_short_one(run: Lineage, browser: Any, tmp_path: Path) -> None:
    facts = run_facts(run)
    elements = "return document.querySelectorAll('*').length"
    opened(browser, as_html([many(facts, 50)]), tmp_path)
    few = browser.execute_script(elements)
    opened(browser, as_html([many(facts, 5000)]), tmp_path)
    until(lambda: sum(browser.execute_script(_MARKS)) == 5000)
    assert browser.execute_script(elements) < few + 10
    browser.execute_script(
        "const make = document.createElement; window.made = 0;"
        "document.createElement = name => { made++; return make.call(document, name); };"
        "document.getElementById('all').open = true"
    )
    rows = "return [...document.querySelectorAll('#trials tbody tr')].map(row => row.textContent)"
    assert until(lambda: browser.execute_script(rows)[100:]) == ["4900 more"]
    browser.find_element("css selector", "#trials tbody tr:last-child button").click()
    assert until(lambda: browser.execute_script(rows)[200:]) == ["4800 more"]
    assert browser.execute_script("return made") < 1000  # what is not shown yet costs nothing
    browser.execute_async_script("show(0, '04999').then(arguments[0])")
    assert "-04999" in browser.find_element("id", "trial").text
    assert not errors(browser)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_room_for_all_of_it(run: Lineage, browser: Any, tmp_path: Path, scheme: str) -> None:
    seen = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", seen)
    facts = run_facts(run)
    facts["trials"][-1]["idea"] = HOSTILE + "x" * 200
    opened(browser, as_html([facts, facts]), tmp_path, wide=390)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true; listing()")
    browser.execute_async_script("show(0, RUNS[0].winner).then(arguments[0])")
    wide = "return document.documentElement.scrollWidth"
    assert browser.execute_script(wide) == 390
    cells = "return [...document.querySelectorAll('td')].filter(one => one.getBoundingClientRect().right > 390).length"
    assert browser.execute_script(cells) == 0
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == (scheme == "dark")
    assert not errors(browser)


@pytest.mark.slow
def test_the_axis_counts_trials_minutes_or_dollars_where_there_are_any(
    run: Lineage, browser: Any, tmp_path: Path
) -> None:
    facts = run_facts(run)
    facts["trials"] = [row | {"minutes": index} for index, row in enumerate(facts["trials"])]
    free = facts | {"spent": facts["spent"] | {"usd": 0.0}}
    seen = "return [...document.querySelectorAll('[data-axis]')].filter(one => !one.hidden).map(one => one.textContent)"
    opened(browser, as_html([free]), tmp_path)
    assert browser.execute_script(seen) == ["trials", "minutes"]
    assert "US dollars" not in browser.find_element("id", "figures").text
    paid = facts | {"spent": facts["spent"] | {"usd": 1.5}}
    opened(browser, as_html([paid]), tmp_path)
    assert browser.execute_script(seen) == ["trials", "minutes", "dollars"]
    assert "$1.50" in browser.find_element("id", "figures").text
    places = "return POINTS.map(([x]) => x)"
    evenly = browser.execute_script(places)
    browser.find_element("css selector", "[data-axis=minutes]").click()
    assert browser.execute_script(places) == pytest.approx(evenly)
    browser.find_element("css selector", "[data-axis=usd]").click()
    assert browser.execute_script(places) != pytest.approx(evenly)


@pytest.mark.slow
def test_runs_side_by_side_are_drawn_each_by_itself_and_a_click_shows_one(
    run: Lineage, browser: Any, tmp_path: Path
) -> None:
    facts = run_facts(run)
    twice = [row | {"us": row["us"] and row["us"] * 2, "best_us": row["best_us"] * 2} for row in facts["trials"]]
    opened(browser, as_html([facts, facts | {"run": "other", "trials": twice}]), tmp_path)
    drawn = "return [...document.querySelectorAll('#multiples .way')].map(path => path.getBBox().y)"
    fast, slow = browser.execute_script(drawn)
    assert fast > slow  # to one scale, on which the fastest lies lowest
    browser.find_elements("css selector", "#multiples button")[1].click()
    assert browser.execute_script("return RUNS[shown].run") == "other"
    pressed = [one.get_attribute("aria-pressed") for one in browser.find_elements("css selector", "#multiples button")]
    assert pressed == ["false", "true"]
    assert not errors(browser)


_SHOWN = """
const all = (selector, of) => [...document.querySelectorAll(selector)].map(of);
const words = id => all(`#${id} tbody tr`, row => [...row.cells].map(cell => [cell.dataset.name, cell.textContent]));
document.getElementById("all").open = true;
listing(ROWS);
return {
  headline: document.getElementById("headline").textContent, trust: document.getElementById("trust").textContent,
  cards: all(".card", card => [card.children[1].textContent, card.firstChild.textContent]),
  trials: words("trials"), cases: words("cases"), story: all("#story > li > .link", one => one.textContent),
};"""
"""What a person reads on a page."""


@pytest.mark.slow
def test_every_figure_on_the_page_is_what_the_lineage_says(run: Lineage, browser: Any, tmp_path: Path) -> None:
    opened(browser, as_html([run_facts(run)]), tmp_path)
    page, population = browser.execute_script(_SHOWN), run.population()
    best, tried = population.best, [trial for trial in population.trials if trial.origin is not Origin.SEED]
    assert best is not None
    assert best.evaluation is not None
    worked = max(row["minutes"] for row in run_facts(run)["trials"])
    cards = dict(page["cards"])
    assert cards["the winner's score"] == f"{population.time_us(best):.4g} µs"
    assert cards["experiments"] == str(len(tried))
    assert cards.get("of work") == (f"{60 * worked:.0f} s" if worked else None)
    claimed = run_facts(run)["claim"]
    assert page["headline"] == claimed
    assert claimed.startswith(f"x{population.scale.ratio(best.id, population.trials[0].id).ratio:.3g} [")  # type: ignore[union-attr]
    assert browser.title.startswith(claimed)
    assert page["trust"].startswith(f"winner {best.id}")
    assert page["story"][-1] == best.id
    rows = [dict(row) for row in page["trials"]]
    assert [row["trial"] for row in rows] == [trial.id for trial in population.trials]
    for row, trial in zip(rows, population.trials, strict=True):
        assert row["verdict"] == trial.verdict
        assert row["µs"] == (f"{population.time_us(trial):.4g}" if trial.score_us else "")
        base = base_of(trial, population.by_id)
        gain = population.speedup(trial, base)
        assert row["over its base"] == (f"{percent(gain.gain_percent)} %" if gain else "")
        assert row["base"] == (trial.parents[0] if trial.parents else "")
    cells = [[one.case, f"{one.us:.4g}"] for one in best.evaluation.timings]
    assert [[cell for _, cell in row[:2]] for row in page["cases"]] == cells


@pytest.mark.slow
def test_the_page_says_what_is_computed_shows_the_code_and_has_trials_in_any_order(
    run: Lineage, browser: Any, tmp_path: Path
) -> None:
    problem = replace(load("softmax", "cpu"), statement="# Title\n\ny = 2 x\n\n## Interface\n\nnot this")
    facts = RunFacts(run, problem).read()
    facts["story"] = [facts["story"][0], *({**facts["story"][-1], "tie": True} for _ in range(3)), facts["story"][-1]]
    for row in facts["trials"]:
        row["predicted"], row["gain"] = [-50.0, 150.0], row["gain"] and 10.0
    opened(browser, as_html([facts]), tmp_path)
    assert browser.execute_script("return document.getElementById('statement').textContent") == "y = 2 x"
    arg = problem.args[0]
    assert f"{arg.name} " in browser.execute_script("return document.getElementById('args').textContent")
    assert [len(browser.find_elements("css selector", "#story > li")), "3 steps that are ties"] == [
        3,
        browser.find_element("css selector", "#story > li.tie summary").text[:21],
    ]
    last = browser.find_element("css selector", "#story > li:last-child")
    last.find_element("css selector", "details > summary").click()
    changed = facts["details"][facts["winner"]]["diff"] or facts["details"][facts["winner"]]["source"]
    shown = "return arguments[0].querySelector('pre')?.textContent"
    assert until(lambda: browser.execute_script(shown, last)).strip() == changed.strip()
    browser.find_element("css selector", "#all > summary").click()
    cells = "return [...document.querySelectorAll('#trials tbody tr')].map(row => row.cells[0].textContent)"
    timed = sorted((row for row in facts["trials"] if row["us"]), key=lambda row: row["us"])
    browser.find_element("xpath", "//table[@id='trials']//th/button[.='µs']").click()
    assert browser.execute_script(cells)[: len(timed)] == [row["id"] for row in timed]
    browser.find_element("id", "words").send_keys(timed[-1]["id"])
    assert browser.execute_script(cells) == [timed[-1]["id"]]
    assert browser.find_element("id", "matching").text == f"1 of {len(facts['trials'])} trials"
    limit = facts["cases"][0]["roofline"]
    pictured = browser.find_element("css selector", "#limits figure").text
    assert f"{facts['cases'][0]['us']:.4g} µs" in pictured
    assert limit is None or f"{limit['bound_us']:.4g}" in pictured
    told = browser.find_element("id", "scatter").get_attribute("aria-label")
    count = sum(row["gain"] is not None and not row["unranked"] for row in facts["trials"])
    assert not count or told == (
        f"Predicted and measured gains of {count} experiments; {count} lie within their predicted range"
    )
    assert not errors(browser)


@pytest.mark.slow
def test_the_live_page_draws_what_comes_and_says_how_far_the_run_is(dry: Path, served: str, browser: Any) -> None:
    browser.get(served)
    many = "return RUNS[0].trials.length"
    before = browser.execute_script(many)
    assert until(lambda: browser.find_element("id", "live").text).startswith("6 of 6 experiments · newest verdict ")
    go_on(dry)
    until(lambda: browser.execute_script(many) >= before + 4)
    until(lambda: browser.find_element("id", "live").text.startswith("4 of 4 experiments"))
    assert browser.execute_script("return document.querySelector('progress').value") == 1
    assert all(url.startswith(served) for url in fetched(browser))
    assert not [error for error in errors(browser) if "favicon" not in error]
