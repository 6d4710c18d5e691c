"""How long the page of a long run takes: made from the lineage, opened, scrolled and zoomed in headless Chromium.

    python benchmarks/report_page.py LINEAGE [PROBLEM RUN [TRIALS]]      fp8_gemm dry

With TRIALS the run's own trials are repeated until there are so many, each with a time, parents and details of its own.
A long run: `python -m ksflow recipe=dry_run designer=random loop.evaluations=5000 loop.confirm=false`. Needs Debian's
chromium and chromium-driver, and selenium. Opened is a page when the last task that took its thread longer than 50 ms
has ended. A pause is the longest time between two frames while somebody turns the wheel from the top to the end, moves
the pointer over the chart, has it count minutes, opens the table of all trials and turns the wheel over it, clicks on a
trial. CPU is that of the page's own thread; where others use the machine, it says more than the clock. The browser has
no GPU.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ksflow.lineage import Lineage
from ksflow.report.page import as_html, run_facts

_OPENED = """
const done = arguments[arguments.length - 1];
let end = performance.getEntriesByType("navigation")[0].loadEventEnd;
new PerformanceObserver(seen => {
  for (const task of seen.getEntries()) end = Math.max(end, task.startTime + task.duration);
}).observe({ type: "longtask", buffered: true });
setTimeout(() => done(end), 3000);
"""
_WATCH = """
window.longest = 0;
let last = performance.now();
(function frame(now) { longest = Math.max(longest, now - last); last = now; requestAnimationFrame(frame); })(last);
"""
_LONGEST = """
const done = arguments[arguments.length - 1];
setTimeout(() => requestAnimationFrame(() => done(longest)), 500);
"""
_WHEEL, _STEPS = 240, 30


def main(words: list[str]) -> int:
    """Print the figures; 0."""
    place, problem, run, trials = [*words, *["", "fp8_gemm", "dry", "0"][len(words) :]]
    began = time.perf_counter()
    lineage = Lineage(Path(place), problem, run, create=False)
    facts = run_facts(lineage)
    lineage.close()
    page = as_html([repeated(facts, int(trials))])
    made, cpu_s = time.perf_counter() - began, time.process_time()
    print(f"{max(len(facts['trials']), int(trials))} trials: made in {made:.1f} s, {cpu_s:.1f} s of CPU", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.html")
        file.write_text(page, encoding="utf-8")
        with _browser(folder) as browser:
            browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            browser.get(file.as_uri())
            opened = browser.execute_async_script(_OPENED) / 1000
            size = len(page.encode()) / 1e6
            print(f"{size:.1f} MB, opened in {opened:.2f} s, {_cpu_s(browser):.2f} s of CPU", flush=True)
            browser.execute_script(_WATCH)
            for name, act in _acts(browser).items():
                browser.execute_script("longest = 0")
                before = _cpu_s(browser)
                act()
                longest, cpu_s = browser.execute_async_script(_LONGEST), _cpu_s(browser) - before
                print(f"{name}: longest pause {longest:.0f} ms, {1000 * cpu_s:.0f} ms of CPU in all", flush=True)
    return 0


def repeated(facts: dict[str, Any], count: int) -> dict[str, Any]:
    """The same run with so many trials at least."""
    like = [row for row in facts["trials"] if row["parents"]]
    rows, details = [*facts["trials"]], {**facts["details"]}
    for number in range(len(rows), count):
        row, id = like[number % len(like)], f"{number + 1:05}"
        times = {"us": row["us"] and row["us"] * (1 + number % 97 / 50), "at": row["at"] + number}
        rows.append(row | times | {"id": id, "parents": [like[number % 2]["id"], like[0]["id"]]})
        details[id] = details[row["id"]] | {"diff": f"-{id}\n{details[row['id']]['diff']}"}
    return facts | {"trials": rows, "details": details}


def _cpu_s(browser: Any) -> float:
    """CPU that the tasks of the page's thread have taken so far."""
    found = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


def _acts(browser: Any) -> dict[str, Callable[[], None]]:
    """What a person does with the page, in this order."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    def found(place: str) -> Any:
        element = browser.find_element("css selector", place)
        browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
        return element

    def wheel(place: str) -> None:
        mouse = ActionChains(browser)
        origin = ScrollOrigin.from_element(found(place)) if place else ScrollOrigin.from_viewport(600, 450)
        for _ in range(_STEPS):
            mouse.scroll_from_origin(origin, 0, _WHEEL).pause(0.03)
        mouse.perform()

    def point() -> None:
        mouse = ActionChains(browser, duration=20).move_to_element(found("#chart"))
        for _ in range(_STEPS):
            mouse.move_by_offset(10, 3)
        mouse.perform()

    return {
        "scrolling": lambda: wheel(""),
        "pointing at the chart": point,
        "counting minutes": lambda: found("[data-axis=minutes]").click(),
        "opening the table": lambda: found("#all summary").click(),
        "scrolling the table": lambda: wheel("#all .scroll"),
        "showing a trial": lambda: found("#trials tbody tr:nth-child(100) .link").click(),
    }


@contextmanager
def _browser(folder: str) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for word in ("headless", "no-sandbox", "window-size=1200,900", f"user-data-dir={folder}/profile"):
        options.add_argument(f"--{word}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        yield browser
    finally:
        browser.quit()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
