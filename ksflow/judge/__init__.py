"""The trusted half: reference, oracle, secret seeds, tolerance, clock, watchdog, verdict. Loads no candidate.

In comes a request (`client` makes it), one after another, into a process of its own (`__main__`, `requests`); out goes
a verdict with its evidence, as JSON. Evaluators and `formats` import it, problems import `bounds`; it uses `sandbox`.
A foreign problem's code runs here, so only problems that the user trusts belong here.

    session, comparison, outcome   a verdict: checked, then timed against others, then a claim confirmed
    cases, input_pool              a case -> packed tensors and what the oracle expects; contents made ahead of time
    in_place, problem_check        arguments that are changed in place as inputs and outputs; a problem's own check
    check, tolerance, bounds       is it right: one call's outputs, the derived bound, rows for problem authors
    timing, overhead, samples, statistics    how fast is it: batches in turns, what a null kernel takes, intervals
    sandboxed, buffers, freezer, failure     the handle on one sandbox, its shared memory, its stops, its end
    device_backend, device_sandbox, device   the same on a GPU: gates, batches, the judge's own events
    probes, mutants, shortcuts     can a problem be judged at all?
    client, evaluator, bench       what evaluators and probers hold of a judge; the only modules without torch

What holds it up:
 - Nothing computed in a process that imported the candidate is believed, except bytes at known offsets, then checked.
 - No sandbox sees contents twice, and every call's outputs are compared, held, and compared again: no replay, no cache,
   no late answer. Large outputs are compared at secret places and at their very end, every eighth at up to 4 million
   elements, which is all of them for most problems.
 - On a CPU a batch is one call, and a sandbox is frozen outside its batches (by a control group, or by signals). The
   inputs of a call do not exist before the call before it has ended, and what a sandbox does pays only for itself.
 - Two clocks that a candidate cannot touch, of which the one that says more counts: the judge's wall clock from before
   the sandbox is thawed until its answer is there, and the operating system's account of all the CPU time of the
   sandbox's process. From both comes off what a null kernel's batches in the same rounds take: some 30 µs, 2 or 3 of
   them for the thaw.
 - On a GPU, too, the inputs of a call do not exist before the call before it has ended: each waits behind a gate of its
   own. The judge's own device events say how long a sandbox had the device, less what a null kernel's call takes (0.3
   ms on an H200, steady to 2 us); a sandbox's own events count as far as they agree with that: within 1.25 us and 1 %,
   or 10 us and 5 % where no code of the kernel's runs on the host. A sandbox has to leave the device quiet.
 - A sandbox has one process by the time it is timed, and its threads share one core.
 - A new best has won twice, in fresh processes on fresh contents. The second time decides: its whole interval, with the
   part of what the old best differs from itself, lies above 1.01, and the mean over all calls says so, too. Who starts
   first and who is called first changes all the time, for the null kernel as well.

Left over: what the operating system's own threads do later for a sandbox (writing back, collapsing pages), contents
that go through side channels of the hardware, luck, and kernels that are right on a problem's distribution only.
"""

VERSION = "10"
"""Part of every verdict: results of another version are stale.

10: the order of kernels and null is reversed in every round and their places change; who starts last changes, too. One
margin of 1 % both ways; the ratio on record is the one of the confirmation, with the control's part in its interval,
and must hold by the mean over all calls. CPU time beyond wall time counts from 1 % on, not 2 %. What a kernel of
another format changes in place is restored outside the timed interval.
"""
