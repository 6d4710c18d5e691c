"""Problems in other projects' formats, read from a user's own checkout. One module for each format.

An importer reads text: it never runs a problem's files. What only running can tell (shapes, types, how long it takes)
a child process finds out. The files stay as they are, inside a `reference.py` that is made for the judge; what was
inferred and what was dropped is said in `Problem.origin`.
"""
