"""One call of a run: what runs at once, what it may cost, how it begins and how it ends.

In come a schedule (budgets), a lab (problem, lineage, stages), seeds, and whom to show each step; out comes an
`Outcome`. The commands and the reports import it; it imports the loop and what is below. It does not build parts from a
configuration, and it displays nothing itself.
"""
