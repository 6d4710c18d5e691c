"""Chips: the target, this machine's CPU, the vendors' programs, and the cost of work.

In: data sheets (conf/target), /proc, the vendors' tools, problem.yaml's `work`, a verdict's evidence. Out: `Target`
records, floors, rooflines, compiler reports in words. Judge, formats, notes, lm, reports and commands import it. It
runs no kernel, times nothing and changes nothing on the machine.
"""
