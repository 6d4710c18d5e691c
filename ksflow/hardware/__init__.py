"""What is known of a chip: the target, this machine's CPU, the vendors' programs, and what work costs on it.

In: data sheets (conf/target), /proc, the vendors' tools, problem.yaml's `work`, a verdict's evidence. Out: `Target`
records, the floor that no time can be below, the roofline, compiler reports in words. Judge, formats, notes, lm,
reports and commands import it. It runs no kernel, times nothing and changes nothing on the machine.
"""
