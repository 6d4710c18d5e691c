"""How designers and digesters without a model search: arithmetic on tunables and on the times that were measured.

In: a population, the space of a base's tunables (`source.families`), the catalogue of moves. Out: experiments that
assign tunables or write dispatch lines, the pick among experiments, and what single changes gained or lost.
Only stages import it. It compiles nothing, times nothing and asks no model; the same population gives the same answer.
"""
