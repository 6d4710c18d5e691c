"""Problems in other projects' formats: `FORMAT/importer.py` reads a user's own checkout, `FORMAT/runtime.py` runs it.

An importer reads text: it never runs a problem's files. What only running can tell (shapes, types, how long it takes)
a child process finds out. The files stay as they are, inside a `reference.py` that is made for the judge and calls the
runtime's `install`; what was inferred and what was dropped is said in `Problem.origin`.

A runtime works in the judge's process and nowhere else. What it makes fits the judge: flat tensors, a reference, a
check. How the flat tensors become what a candidate of that format is called with travels to the box as `binding` (see
`sandbox.tree`). Problems of ksflow's own format are read in `problem`.
"""
