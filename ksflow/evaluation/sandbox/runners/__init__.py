"""Runs inside a sandbox and calls the candidate: one runner for each kind of kernel.

`cpu` and `device` are the processes that answer the judge; the language selects the runner of the kernel: shared
objects and launched device code (standard library only), Python (`torch_kernel`, `foreign` for other projects'
signatures, with the arguments of `pytree` and the devices of `device_mapping`), Triton on a CPU (`interpreted`).
Only runners of kernels that need torch, numpy or triton import them.
"""
