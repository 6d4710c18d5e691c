"""Vendors' tools on a kernel: counters (`ncu`, `rocprof`), faults (`sanitizer`).

In: an accepted kernel with its build. Out: evidence for the next experiment, and no verdict but `fault` (memcheck in
strong mode). A tool that is missing, refused or too slow leaves one sentence. The tools run `program`, which calls one
kernel on one case, in a sandbox (`tool_sandbox`), while the device's lock is held (`inspector`). `tools.toml` explains
what the tools print. The judge imports it. Tools that trace may trace their own sandbox, and use its own loopback
interface. NOT covered: a kernel that runs beside its tool can forge the tool's output; where sandboxes reach `landlock`
or `rlimits` only, there is neither tracing nor a loopback interface, and tools that need them are refused.
"""
