"""Child processes: what they see of the environment, how they are asked, which cores and device they have.

`server_process` is a process of our own that answers over pipes (`wire`), with a `child_environment` without keys;
`ending` has the signals that ask a command to end, `deadline` ends waits for processes and locks, `core_pinning` keeps
others off the cores that kernels are timed on, `device_lock` off a GPU; `quota` tells what control groups allow;
`scratch` has folders that are removed even when their process is killed. Any room above may import it. Standard library
only; no candidate runs in these processes, that is for the sandbox.
"""
