"""One call of a run: what runs at once, what it may cost, how it begins and how it ends."""
