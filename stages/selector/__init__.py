"""Selectors: which kernel to change, and which one to learn from."""
