"""From a model to its kernels, and back into the model.

In: a user's file with a model and its inputs, and winners of runs. Out: which regions take its time (`profile`),
those as problem folders (`problem`), a package that puts winners in the place of the modules' forward (`package`, and
its text `installed`), what that does for the whole model (`prove`), a function of a repository as a problem
(`isolate`), and its winner as a patch of that repository (`patch`). The commands may import it. It judges
nothing itself.
"""

from pathlib import Path

from ksflow import home

TEXTS = home.sections(Path(__file__).with_name("templates.txt"))
"""What the files that are written are made of."""
