"""Evaluators: `local` compiles, judges and times on this machine; `fake` answers without running anything."""
