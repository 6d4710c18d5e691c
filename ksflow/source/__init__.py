"""The text of a kernel, read and rewritten; nothing of it is run.

In: a source, or a population of kernels. Out: its tunables and constants, the launches that it asks for each case, its
fingerprint, what it must define (`contract`), a model's edits applied to it (`patch`), and which trials can be compared
(`families`). What is wrong with a text is a ValueError in one line.
Imports the records alone; every room above may import it. It does not compile, time or choose anything.
"""
