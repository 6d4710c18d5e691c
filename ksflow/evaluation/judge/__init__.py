"""The trusted half: reference, oracle, secret seeds, tolerance, clock, watchdog, verdict. Loads no candidate.

In come requests (made by `client`), one after another, to a process of its own (`__main__`, `requests`); out go
verdicts with evidence, as JSON. Evaluators and `formats` import this package, problems import `bounds`; it uses
`sandbox`. A problem's reference.py runs here, so only problems that the user trusts may be judged.

    session, comparison, outcome   a verdict: checked, then timed against others, then a claim confirmed
    cases, input_pool              a case -> packed tensors and the oracle's expected outputs; contents made ahead
    problem_check                  a problem's own check, which may raise or never return
    check, tolerance, bounds       correctness: one call's outputs, the derived bound, rows for problem authors
    timing, overhead, samples, statistics    speed: batches in turns, clocks less the null kernel's overhead, intervals
    sandboxed, buffers, freezer, failure     the handle on one sandbox, its shared memory, its stops, its end
    device_backend, device_sandbox, device   the same on a GPU: gates, batches, the judge's own events
    probes, mutants, shortcuts     can a problem be judged at all?
    client, evaluator, bench       used by evaluators and probers; the only modules without torch

What the verdicts rest on:
 - Of a process that imported the candidate, only bytes at known offsets are used, and checked.
 - No sandbox sees contents twice, and every call's outputs are compared, held, and compared again: no replay, no cache,
   no late answer. Large outputs are compared at secret places and at their very end, every eighth at up to 4 million
   elements, which is all of them for most problems.
 - On a CPU a batch is one call, and a sandbox is frozen outside its batches (by a cgroup, or by signals). The inputs of
   a call do not exist before the previous call has ended, and a sandbox's work cannot slow down another one.
 - The larger of two clocks that a candidate cannot manipulate counts: the judge's wall clock from before the sandbox is
   thawed until its answer is there, and the operating system's count of all CPU time of the sandbox's process. From
   both the time of a null kernel's batches in the same rounds is subtracted: some 30 µs, 2 or 3 of them for the thaw.
 - On a GPU, too, the inputs of a call do not exist before the previous call has ended: each waits behind its own gate.
   The judge's device events measure how long a sandbox had the device, less the time of a null kernel's call (0.3 ms on
   an H200, steady to 2 us); a sandbox's own events count as far as they agree with that: within 1.25 us and 1 %, or 10
   us and 5 % if no code of the kernel runs on the host. A sandbox must leave the device idle.
 - A sandbox has one process by the time it is timed, and its threads share one core, or the target's `cores`, none of
   which is the judge's. With several cores the second clock is the wall clock and all CPU time outside of the call.
 - A new best has won twice, in fresh processes on fresh contents. The second comparison decides: its whole interval,
   widened by the difference of the old best from itself, lies above 1.01, and so does the mean over all calls. The
   order of starts and of calls changes all the time, for the null kernel as well.

Not covered: work that the operating system's own threads do later for a sandbox (writing back, collapsing pages),
contents passed through side channels of the hardware, luck, and kernels that are right on a problem's distribution
only.
"""

VERSION = "11"
"""Part of every verdict: results of another version are stale.

11: malloc keeps what a kernel frees, as in a process that has run for a while: arrays that a call makes and drops (as
NumPy's expressions do) are not faulted in again in each call, which took up to three quarters of a reference's time.
"""
