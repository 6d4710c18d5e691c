"""Child processes: their environment, requests and answers, cores and device.

`server_process` is a process of ours that answers over pipes (`wire`), with a `child_environment` without keys;
`ending` has the signals that ask a command to end, `deadline` limits waits for processes and locks, `core_pinning`
keeps other processes off the cores on which kernels are timed, `device_lock` off a GPU; `quota` reads cgroup limits;
`scratch` has folders that are removed even if their process is killed. Any package above may import it. Standard
library only; candidates do not run in these processes but in a sandbox.
"""
