"""A kernel beside its problem's baselines with 1, 2, 4 ... cores each, by the judge, as a Markdown table.

    python benchmarks/cores.py KERNEL PROBLEM CORES ...

For example `seeds/softmax/02_rows.cpp softmax 1 2 4 8`. The judge needs one core more than the largest number.
"""

import sys
from datetime import date

import ksflow


def main(kernel: str, problem: str, *cores: str) -> None:
    """Write a row for each number of cores; `not ranked` marks readings that do not hold."""
    rows = []
    for count in cores:
        found = ksflow.evaluate(kernel, f"problem={problem}", f"target.cores={count}")
        beside = ", ".join(f"{row} over {row.id}" for row in found.evidence.against)
        time = f"{found.score_us:.4g} µs" if found.score_us else found.reason
        rows.append(f"| {count} | {found.verdict.value} | {time} | {beside} |")
        device = f"{found.evidence.device or found.target}, {date.today()}"
    head = ["| cores | verdict | time | speed-up, as many cores each |", "|---|---|---|---|"]
    sys.stdout.write("\n".join([f"{kernel}, {problem}, {device}", "", *head, *rows, ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
