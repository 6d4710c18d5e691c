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
from conftest import again, until
from test_cli import DRY, ksflow
from test_session import Run

from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.records import Explanation, Feature, Origin, Presence, Statement, base_of, speedup
from ksflow.report.page import RunFacts, as_html, as_markdown, as_png, run_facts
from ksflow.report.page.facts import _diff
from ksflow.report.page.lanes import lanes

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
    facts, known = run_facts(run), run.population()
    assert [row["id"] for row in facts["trials"]] == sorted(trial.id for trial in run.all_trials())
    for row in facts["trials"]:
        trial = known.by_id[row["id"]]
        assert row["us"] == pytest.approx(trial.score_us)
        assert (row["parents"], row["verdict"]) == (list(trial.parents), trial.verdict)
    assert known.best is not None
    assert facts["winner"] == known.best.id
    assert facts["trials"][-1]["best_us"] == known.best.score_us
    assert facts["cases"][0]["us"] == known.best.evaluation.timings[0].us  # type: ignore[union-attr]
    assert facts["story"][-1]["id"] == known.best.id
    assert facts["spent"]["usd"] == run.spent().usd
    assert facts["winner_commit"] == run.commit_of(known.best.id)
    json.dumps(facts, allow_nan=False)


def test_what_does_not_change_is_worked_out_once_and_what_does_is_seen(run: Lineage) -> None:
    facts = RunFacts(run)
    before = facts.read()
    assert facts.read() == before
    assert all(facts.read()["details"][name] is details for name, details in before["details"].items())
    changed = max((t for t in run.all_trials() if t.experiment), key=lambda trial: trial.id)
    assert changed.evaluation
    alone = changed.evaluation.with_evidence(against=(), claim=None)  # nothing says on which scale the time is
    run.evaluate(replace(changed, evaluation=replace(alone, score_us=0.25)))
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


@pytest.mark.parametrize(
    ("bases", "trunk", "wanted"),
    [
        ([None, 0, 1, 2], {0, 1, 2, 3}, [0, 0, 0, 0]),
        ([None, 0, 0, 0], {0, 3}, [0, 1, 1, 0]),
        ([None, None, 0, 1, 0], (), [0, 1, 2, 2, 1]),
        ([], (), []),
    ],
)
def test_lanes_keep_the_winners_line_apart_and_are_used_again(
    bases: list[int | None], trunk: set[int], wanted: list[int]
) -> None:
    assert lanes(bases, trunk) == wanted


def test_a_page_names_nothing_that_would_be_fetched(run: Lineage) -> None:
    page = as_html([run_facts(run)])
    own = html.unescape(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    assert not re.search(r"(?:src|href)\s*=|url\(|@import", own)
    assert "connect-src 'none'" in own


def test_markdown_has_the_claim_the_cases_and_the_story(run: Lineage) -> None:
    facts = run_facts(run)
    facts["trials"][-1]["idea"] = HOSTILE
    facts["story"].append({"id": facts["trials"][-1]["id"], "beside": []})
    facts["explanation"] = [f"matrix cores present {HOSTILE}"]
    text = as_markdown(facts)
    assert facts["winner_commit"] in text
    assert "- matrix cores present \\<" in text
    assert re.search(r"^\| case \| winner µs \|", text, re.MULTILINE)
    assert "<script>" not in text
    assert "\\*\\*x\\*\\*" in text


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


@pytest.mark.slow
def test_a_click_on_the_graph_shows_the_trial(run: Lineage, browser: Any, tmp_path: Path) -> None:
    facts = run_facts(run)
    facts["trials"][-1]["idea"] = HOSTILE
    facts["story"][-1]["features"] = HOSTILE
    facts["details"][facts["trials"][-1]["id"]]["explanation"] = HOSTILE
    facts["notes"] = [{"title": HOSTILE, "text": HOSTILE, "sources": [HOSTILE], "status": "measured"}]
    (tmp_path / "page.html").write_text(as_html([facts, {**facts, "run": "other"}]))
    browser.get((tmp_path / "page.html").as_uri())
    points = "return document.querySelectorAll('#graph .point').length"
    until(lambda: browser.execute_script(points) == len(facts["trials"]))
    from selenium.webdriver.common.action_chains import ActionChains

    middle = (
        "document.getElementById('graph').scrollIntoView(); const now = document.querySelectorAll('#graph .point')[0]"
        ".getBoundingClientRect(); return [now.x + now.width / 2, now.y + now.height / 2]"
    )

    def clicked() -> str | None:
        """What is shown after another click on the first point."""
        mouse = ActionChains(browser)
        mouse.w3c_actions.pointer_action.move_to_location(*map(round, browser.execute_script(middle)))
        mouse.pause(0.2).click().perform()
        title: str | None = browser.execute_script("return document.querySelector('#trial h3')?.textContent")
        return title

    shown = until(clicked)
    assert shown.startswith(facts["trials"][0]["id"])
    browser.execute_script(f"show(0, {facts['trials'][-1]['id']!r})")
    until(lambda: HOSTILE in browser.execute_script("return document.getElementById('trial').textContent"))
    evidence = facts["details"][facts["trials"][-1]["id"]]["evidence"].split()[:2]
    text = until(lambda: browser.execute_script("return document.getElementById('trial').textContent"))
    assert all(word in text for word in evidence)
    browser.execute_script("document.getElementById('all').open = true")
    rows = "return document.querySelectorAll('#trials tbody tr').length"
    assert until(lambda: browser.execute_script(rows)) == len(facts["trials"])
    assert "other" in browser.execute_script("return document.getElementById('compared').textContent")
    assert "mine" not in browser.title
    assert not fetched(browser)
    assert not errors(browser)


@pytest.mark.slow
def test_a_long_run_is_drawn_and_has_all_lines_where_few_trials_are_in_view(
    run: Lineage, browser: Any, tmp_path: Path
) -> None:
    facts = run_facts(run)
    one = facts["trials"][-1] | {"lane": 1, "parents": [facts["trials"][0]["id"]]}
    facts["trials"] += [one | {"id": f"{number:05d}"} for number in range(1000, 2000)]
    (tmp_path / "page.html").write_text(as_html([facts]))
    browser.get((tmp_path / "page.html").as_uri())
    lines = "return document.getElementById('graph').data[0].x.length / 3"
    assert browser.execute_script(lines) < len(facts["trials"]) - 1000
    for edge in (900, 950):
        zoomed = f"Plotly.relayout('graph', {{'xaxis.range': [{edge}, {edge + 50}]}}).then(arguments[0])"
        browser.execute_async_script(zoomed)
        assert until(lambda: browser.execute_script(lines) == 51)
    drawn = (
        "return [document.querySelectorAll('#graph canvas').length > 0, document.querySelectorAll('.no-webgl').length]"
    )
    assert browser.execute_script(drawn) == [True, 0]
    assert not fetched(browser)


_SHOWN = """
const all = (selector, of) => [...document.querySelectorAll(selector)].map(of);
const words = id => all(`#${id} tbody tr`, row => [...row.cells].map(cell => cell.textContent));
document.getElementById("all").open = true;
listing();
return {
  headline: document.getElementById("headline").textContent,
  cards: all(".card", card => [card.lastChild.textContent, card.firstChild.textContent]),
  best: [...document.getElementById("progress").data.at(-1).y],
  points: [...document.getElementById("graph").data.at(-1).customdata],
  trials: words("trials"), cases: words("cases"), story: all("#story > li > .link", one => one.textContent),
};"""
"""What a person reads on a page."""


@pytest.mark.slow
def test_every_figure_on_the_page_is_what_the_lineage_says(run: Lineage, browser: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(as_html([run_facts(run)]))
    browser.get((tmp_path / "page.html").as_uri())
    page, known = browser.execute_script(_SHOWN), run.population()
    best, tried = known.best, [trial for trial in known.trials if trial.origin is not Origin.SEED]
    assert best is not None
    assert best.evaluation is not None
    accepted = sum(trial.score_us is not None for trial in tried)
    steps = [one.id for one in known.best_so_far if one]
    dates = [run.store.commit_facts(run.commit_of(trial.id))[1] for trial in known.trials]
    assert dict(page["cards"]) == {
        f"experiments + {len(known.trials) - len(tried)} seeds": str(len(tried)),
        "of them accepted": f"{100 * accepted / len(tried):.0f} %",
        "improvements": str(len({name for name in steps if name in {trial.id for trial in tried}})),
        "model calls": str(run.spent().calls),
        "US dollars": f"{run.spent().usd:.2f}",
        "minutes": f"{(max(dates) - min(dates)) / 60:.1f}".removesuffix(".0"),
    }
    assert page["headline"].startswith((f"winner {best.id}: ", f"{best.id} and "))
    assert page["best"] == [one.score_us for one in known.best_so_far if one]
    assert page["points"] == [trial.id for trial in known.trials]
    assert page["story"][-1] == best.id
    assert [row[0] for row in page["trials"]] == page["points"]
    for row, trial in zip(page["trials"], known.trials, strict=True):
        assert row[1] == trial.verdict
        assert row[2] == (f"{trial.score_us:.4g}" if trial.score_us else "")
        base = base_of(trial, known.by_id)
        gain = speedup(trial, base) if base else None
        assert row[3] == (f"{gain.gain_percent:+.4g} %" if gain else "")
        assert row[5] == (trial.parents[0] if trial.parents else "")
    assert [row[:2] for row in page["cases"]] == [[one.case, f"{one.us:.4g}"] for one in best.evaluation.timings]


@pytest.mark.slow
def test_the_live_page_draws_what_comes(dry: Path, served: str, browser: Any) -> None:
    browser.get(served)
    many = "return RUNS[0].trials.length"
    before = browser.execute_script(many)
    go_on(dry)
    until(lambda: browser.execute_script(many) > before)
    assert all(url.startswith(served) for url in fetched(browser))
    assert not [error for error in errors(browser) if "favicon" not in error]
