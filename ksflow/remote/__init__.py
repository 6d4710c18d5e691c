"""Judging elsewhere: a folder that is shared (spool) and its worker; the queue of GPU MODE (popcorn)."""
