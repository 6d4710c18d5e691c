"""One call of a run: the round, what runs at once, what it may cost, how it begins and how it ends.

`Run` holds what is shared: problem, lineage, stages, budgets, the queue for the device, whom to tell. It is made by
whoever begins a run (command line, sweep, Python, an assistant's server) and passed down: `search` drives it by itself,
`AskTell` as it is told. Start with `round.py`. The room imports the stages' protocols, the lineage, notes and
records; it builds no part from a configuration, and it displays nothing.
"""
