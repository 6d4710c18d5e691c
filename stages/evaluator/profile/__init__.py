"""What a vendor's tools say of a kernel beside its time: counters (`ncu`, `rocprof`), faults (`sanitizer`).

Evidence for the next experiment, never part of a verdict: a tool that is missing, refused or too slow leaves one
sentence that says so. The tools run `program`, which calls one kernel on one case. NOT covered: isolation. In host mode
the kernel's own code runs in that program, with the rights of whoever called the tool.
"""
