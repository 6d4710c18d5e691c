"""Asking the hardware."""
