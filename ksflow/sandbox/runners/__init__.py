"""What runs inside a sandbox and calls the candidate: one runner for each kind of kernel, and one for programs.

`cpu` and `device` are the processes that answer the judge; what calls a kernel there is chosen by its language:
shared objects and launched device code (standard library only), Python (`torch_kernel`, `foreign` for other projects'
signatures, over the arguments of `pytree` and with the devices of `device_mapping`), Triton on a CPU (`interpreted`).
`protocol` is what they have in common. `program` runs a compiler or a vendor's tool. Only what needs a kernel's own
libraries imports torch, numpy or triton.
"""
