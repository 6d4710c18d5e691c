"""Search without a model, for designers and digesters: arithmetic on tunables and on measured times.

In: a population, the space of a base's tunables (`source.families`), the catalogue of moves. Out: experiments that
assign tunables or write dispatch lines, the pick among experiments, and gains and losses of single changes.
Only stages import it. It compiles nothing, times nothing and calls no model; the same population gives the same result.
"""
