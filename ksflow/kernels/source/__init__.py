"""The text of a kernel, read and rewritten, never executed.

In: a source, or a population of kernels. Out: its tunables and constants, its launches for each case, its fingerprint,
its `contract`, a model's edits applied to it (`edits`, `patch`), which trials can be compared (`families`). An invalid
text is a ValueError in one line. Imports the records alone; every package above may import it. It does not compile,
time or choose anything.
"""
