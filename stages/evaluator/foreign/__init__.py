"""Problems in other projects' formats, on the judge's side: their files run here, never where ksflow itself runs.

An importer (`ksflow.importers`) writes a `reference.py` that holds the foreign files as they are and calls `install`.
What that makes fits the judge: flat tensors, a reference, a check. How the flat tensors become what a candidate of
that format is called with travels to the box as `bind` (see `tree`).
"""
