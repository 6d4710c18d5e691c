"""The winner as files that a user takes away.

In: the winning trial, its problem and target. Out: the kernel with its evidence and a module or README (`package`), and
one file in the problem's own format under `handover/` (`winner`), which holds its sources, compiles and launches them
(`loader`, `templates.txt`, and `facts`, found by a child process), and of a module a repository for Hugging Face's
`kernels` (`hub`). The commands may import it. It judges nothing
itself: the evaluator that it is given tries what was written.
"""

from ksflow.integrate.handover.winner import HandedOver, hand_over

__all__ = ["HandedOver", "hand_over"]
