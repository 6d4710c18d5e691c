"""Designers: avenues, experiments and the ones that are run."""
