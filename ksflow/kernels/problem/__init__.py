"""A problem folder (`problem.yaml`, `reference.py`, `statement.md`, seeds) becomes a `Problem`.

In: a folder or a shipped problem's name. Out: a `Problem`, or a ConfigError that names the place of the mistake. `file`
checks shapes and types, `loader` what the words mean, `kernel_file` a kernel of a user's own. Everything above may
import it. Nothing in the folder is run here, and other projects' formats are read in `formats`.
"""
