"""The trusted half: reference, oracle, secret seeds, tolerance, clock, watchdog, verdict. Loads no candidate.

    __main__, desk                 zygotes first, then torch, then one request after another
    cases, suite                   a case -> packed tensors and what the oracle expects; one judgement's contents
    bound                          the derived tolerance, and the comparison
    box                            the handle on one box: slots, messages, watchdog, log
    check                          is it right?
    timing, overhead, statistics   how fast is it?
    session, probes                a verdict with its evidence; can a problem be judged at all?

Covered: nothing computed in a process that imported the candidate is believed, except bytes at known offsets that are
then checked. Every timed output is checked, the clock is the judge's, CPU time beyond the wall time is charged, and
contents that a kernel has seen must not be faster than new ones. NOT covered yet: a floor from physics, sandboxes
beyond rlimits and an own user, a foreign problem's code apart from the judge, endless fresh contents (a case has a
pool of four, drawn at random, plus new ones at the end), CPU time of processes that a kernel starts, GPUs.
"""
