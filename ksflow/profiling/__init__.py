"""What a vendor's tools say of a kernel beside its time: counters (`ncu`, `rocprof`), faults (`sanitizer`).

Evidence for the next experiment, never part of a verdict: a tool that is missing, refused or too slow leaves one
sentence that says so. The tools run `program`, which calls one kernel on one case, in a box (`running`), while the
device's lock is held (`watch`). Tools that trace may trace their own box, and talk to it over its own loopback
interface. NOT covered: a kernel that runs beside its tool can make the tool say what it likes; where boxes reach
`landlock` or `rlimits` only, there is neither tracing nor a loopback interface, and tools that need them are refused.
"""
