"""Proofs in words, for the terminal and the page."""

import time

from rich.console import Console

from ksflow.records import Json, Proof
from ksflow.report.words import day, format_us, say, table


def facts(proof: Proof, at: int) -> Json:
    """Return a title, two tables with their heads as the first row, and remarks."""
    ways = [["", "without (µs)", "with (µs)", "speed-up", "by Amdahl's law", "outputs differ by"]]
    for way in proof.ways:
        predicted = "x{:.3g} [{:.3g}, {:.3g}]".format(*way.predicted) if way.predicted else ""
        alike = f"{way.difference:.2g}" if way.outputs_agree else f"{way.difference:.2g}: too much"
        ways.append([way.name, format_us(way.without_us), format_us(way.with_us), str(way.ratio), predicted, alike])
    engaged = [["kernel", "modules", "ran per call", "fallbacks", "share of the time", "by the judge"]]
    for kernel in proof.kernels:
        ran = ", ".join(f"{count:.3g} {way}" for way, count in kernel.hits.items())
        back = ", ".join(f"{why} {count}" for why, count in kernel.fallbacks.items()) or "none"
        shares = ", ".join(f"{100 * share:.3g} % {way}" for way, share in kernel.shares.items())
        ratios = ", ".join(f"x{ratio[0]:.3g} over {way}" for way, ratio in kernel.ratios.items())
        engaged.append([f"{kernel.region} ({kernel.branch})", str(kernel.modules), ran, back, shares, ratios])
    where = f"{proof.machine}, {proof.threads} threads, torch {proof.torch}, torch.compile mode {proof.mode}"
    replicates = max((len(way.ratio.replicates) for way in proof.ways), default=0)
    title = f"{proof.model}, {where}, {day(at)}; {replicates} replicates, 95 % intervals"
    return {"title": title, "ways": ways, "engaged": engaged, "remarks": list(proof.remarks)}


def show(console: Console, proof: Proof) -> None:
    """Print the proof."""
    content = facts(proof, int(time.time()))
    say(console, content["title"])
    for heads, *rows in (content["ways"], content["engaged"]):
        if rows:
            console.print(table(heads, rows))
    say(console, *content["remarks"])
