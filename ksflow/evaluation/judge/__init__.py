"""The trusted half: reference, oracle, secret seeds, tolerance, clock, watchdog, verdict. Loads no candidate.

In come requests (made by `client`), one after another, to a process of its own (`__main__`, `requests`); out go
verdicts with evidence, as JSON. Evaluators and `formats` import this package, problems import `bounds`; it uses
`sandbox`. A problem's reference.py runs here, so only problems that the user trusts may be judged.

    session, comparison, outcome   a verdict: checked, then timed against others, then a claim confirmed
    cases, input_pool              a case -> packed tensors and the oracle's expected outputs; contents made ahead
    check, tolerance, bounds       correctness: one call's outputs, the derived bound, rows for problem authors
    timing, overhead, samples, statistics    speed: batches in turns, clocks less the null kernel's overhead, intervals
    sandboxed, buffers, freezer, failure     the handle on one sandbox, its shared memory, its stops, its end
    device_backend, device_sandbox, device   the same on a GPU: gates, batches, the judge's own events
    probes, mutants, shortcuts, mistakes     can a problem be judged at all?
    client, evaluator, bench       used by evaluators and probers; the only modules without torch

What the verdicts rest on; docs/trust.md and docs/gpu.md have the figures and what is not covered:
 - Of a process that imported the candidate, only bytes at known offsets are used, and checked.
 - No sandbox sees contents twice, and every call's outputs are compared, held, and compared again: no replay, no cache,
   no late answer.
 - The inputs of a call do not exist before the previous call has ended. A sandbox is frozen outside its batches, and
   must leave a device idle and its outputs as they were when its stream ended.
 - The larger of two clocks that a candidate cannot manipulate counts, less the time of a null kernel's batches in the
   same rounds. On a GPU the judge's device events count, and a sandbox's own as far as they agree with those.
 - A sandbox has one process by the time it is timed, and its threads share cores of which none is the judge's.
 - A new best has won twice, in fresh processes on fresh contents, and the second comparison decides.
"""

VERSION = "13"
"""Part of every verdict: results of another version are stale.

13: on a GPU, a time slice for which a context keeps the device before a call does not count as the call's time, unless
most calls have one: version 12 charged kernels on joined streams up to 22 times what they take.
12: on a GPU, outputs that change after the stream has ended are a cheat (a sample of them is copied in the stream, and
compared), and a kernel whose events the judge's clock does not confirm in the mean is charged that clock's mean.
11: malloc keeps what a kernel frees, as in a process that has run for a while: arrays that a call makes and drops (as
NumPy's expressions do) are not faulted in again in each call, which took up to three quarters of a reference's time.
"""
