"""Where each trial of a lineage is drawn: in the order of time, each in a lane, as in `git log --graph`."""

from collections.abc import Collection, Sequence


def lanes(bases: Sequence[int | None], trunk: Collection[int] = ()) -> list[int]:
    """The lane of each trial, in the order of time. `bases[i]` is the place of trial i's base, None for a root.

    trunk: the places of the winner and of its ancestors, which get lane 0 to themselves. Any other trial gets the
    lowest lane in which nothing is left that a later trial was made from.
    """
    last_child = {base: at for at, base in enumerate(bases) if base is not None}
    free_from = [len(bases)] if trunk else []
    found: list[int] = []
    for at in range(len(bases)):
        if at in trunk:
            found.append(0)
            continue
        lane = next((lane for lane, until in enumerate(free_from) if until < at), len(free_from))
        if lane == len(free_from):
            free_from.append(0)
        free_from[lane] = last_child.get(at, at)
        found.append(lane)
    return found
