"""Tests that time kernels, or that count what runs: they have the machine to themselves."""
