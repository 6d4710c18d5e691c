"""The trusted half: reference, oracle, secret seeds, tolerance, clock, watchdog, verdict. Loads no candidate.

    __main__   the process: zygotes first, then torch, then one request after another
    cases      a case -> tensors packed as bytes, with what the oracle expects of them
    bound      the derived tolerance, and the comparison
    box        the judge's handle on one box: slots, messages, watchdog, log
    check      is it right?     timing   how fast is it?     statistics   what do the samples say?
    session    a request -> a verdict with its evidence

Covered: nothing computed in a process that imported the candidate is believed, except bytes at known offsets that are
then checked. Every timed output is checked, the clock is the judge's, CPU time that a candidate spends outside its
turns is charged to it. NOT covered yet: a floor from physics, sandboxes beyond rlimits and an own user, a foreign
problem's code apart from the judge, moves that make endless fresh contents from the pool of inputs, GPUs.
"""
