"""The winner in its problem's format, and the file that compiles and launches it."""

from ksflow.export.export import Exported, export_winner

__all__ = ["Exported", "export_winner"]
