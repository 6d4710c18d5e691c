"""The commands: each reads its words, composes the configuration, calls the rooms below, and returns an exit status."""
