"""Digesters: outcomes and documents become notes."""
