"""The winner in its problem's format, and the file that compiles and launches it."""

from ksflow.export.winner import Handed, hand_over

__all__ = ["Handed", "hand_over"]
