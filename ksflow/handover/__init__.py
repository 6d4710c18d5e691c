"""The winner in its problem's format, and the file that compiles and launches it."""

from ksflow.handover.winner import Handed, hand_over

__all__ = ["Handed", "hand_over"]
