"""Problems in other projects' formats: `FORMAT/importer.py` reads a user's checkout, `FORMAT/runtime.py` runs it.

In: paths and options from the configuration. Out: a `Problem`. An importer parses text into a `ParsedProblem`, and
`assembly` makes the problem of it; what only running can tell (shapes, types, time) a child process finds out
(`describe`). The files stay as they are, inside a `reference.py` that is made for the judge and calls `install`;
`Problem.origin` says what was inferred and what was dropped. A runtime works in the judge's process and nowhere else:
it has flat tensors, and `binding` (see `sandbox.tree`) tells the sandbox how a candidate is called on them.
The configuration names importers; `export` may import this room, `problem` and those below it may not.
Not here: problems of ksflow's own format (`problem`), and any judging.
"""
