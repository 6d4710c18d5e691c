"""Telling somebody else of a run."""
