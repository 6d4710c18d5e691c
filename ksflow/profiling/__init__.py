"""What a vendor's tools say of a kernel beside its time: counters (`ncu`, `rocprof`), faults (`sanitizer`).

In: an accepted kernel as it was built. Out: evidence for the next experiment, and no verdict but `fault` (memcheck in
strong mode). A tool that is missing, refused or too slow leaves one sentence that says so. The tools run `program`,
which calls one kernel on one case (`workload`), in a sandbox (`tool_sandbox`), while the device's lock is held
(`inspector`). The judge imports it. Tools that trace may trace their own sandbox, and talk to it over its own loopback
interface. NOT covered: a kernel that runs beside its tool can make the tool say what it likes; where sandboxes reach
`landlock` or `rlimits` only, there is neither tracing nor a loopback interface, and tools that need them are refused.
"""
