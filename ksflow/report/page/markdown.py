"""A run as text of a pull request: the claim, its evidence, the cases, the history."""

from ksflow.errors import pluralize
from ksflow.records import Json

_MOMENTS = "Times are as of the newest confirmation: they follow from ratios of kernels that were timed in turns."


def as_markdown(run: Json) -> str:
    """Return one run's facts as Markdown. Texts of models are escaped."""
    trust, rows = run["trust"], {row["id"]: row for row in run["trials"]}
    lines = [f"## {plain(run['headline'])}", ""]
    if run["held_out"]:
        lines += [f"The winner is {plain(run['held_out'])}.", ""]
    if trust:
        lines += [
            f"Problem `{run['problem']}`, run `{run['run']}`, commit `{run['winner_commit']}`; judged on "
            f"{trust['machine']}, {trust['date']} ({trust['judge']}, isolation {trust['isolation'] or 'unknown'}).",
            "",
        ]
    names = run["baselines"]
    if run["cases"]:
        heads = ["case", "winner µs", *(f"{name} µs" for name in names.values()), "roofline µs"]
        lines += [row(heads), row(["---", *["---:"] * (len(heads) - 1)])]
        for case in run["cases"]:
            limit = (case["roofline"] or {}).get("bound_us")
            times = [_us(case["us"]), *(_us(case["baselines"][name]) for name in names), _us(limit)]
            lines.append(row([case["case"], *times]))
        lines += ["", _MOMENTS, ""]
    if profile := run["profile"]:
        lines += [f"{profile['heading']}: {plain(profile['title'])}", "", *_table(profile["rows"])]
    if proof := run["proof"]:
        lines += [f"In the whole model: {plain(proof['title'])}", ""]
        lines += [*_table(proof["ways"]), *_table(proof["engaged"])]
        lines += [f"{plain(line)}\n" for line in proof["remarks"]]
    lines.append("How it came about:")
    for step in run["story"]:
        trial = rows[step["id"]]
        came = "; ".join(step["came"]) or f"{_us(trial['us'])} µs"
        lines.append(f"1. {trial['id']} ({plain(came)}): {plain(step['idea'])}")
        if step.get("features"):
            lines.append(f"   Has {plain(step['features'])}.")
    if run["explanation"]:
        statements = (f"- {plain(line.removeprefix('- '))}" for line in run["explanation"] if line)
        lines += ["", "What the winner does:", "", *statements]
    seeds = sum(row["origin"] == "seed" for row in run["trials"])
    tried = [row for row in run["trials"] if row["origin"] != "seed" and not row["repeat"]]
    right = sum(row["verdict"] == "accept" for row in tried)
    lines += [
        "",
        f"{pluralize(len(tried), 'experiment')} after {pluralize(seeds, 'seed')}: {right} accepted, "
        f"${run['spent']['usd']:.2f} in {pluralize(run['spent']['calls'], 'model call')}.",
    ]
    return "\n".join(lines) + "\n"


def _table(rows: list[list[str]]) -> list[str]:
    heads, *body = rows
    return [row(heads), row(["---"] * len(heads)), *map(row, body), ""]


def row(cells: list[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(plain(cell) for cell in cells)} |"


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def plain(text: str) -> str:
    """Return a text on one line, without markup."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in " ".join(text.split()))
