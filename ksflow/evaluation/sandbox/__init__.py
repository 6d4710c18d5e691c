"""Confinement of a candidate, or a compiler: standard library only, forked from a process without secrets.

In: an order (JSON: files, limits, level, how the kernel is called) and descriptors. Out: messages on how it ended.
`levels` tells how well this machine can confine it (`probe` tries). A `zygote` forks a `supervisor` for each sandbox,
which limits it (`cgroup`), and starts its `init`: that builds the `root` directory and forks the candidate's process,
which confines itself (`confine`: user, limits, `landlock`, `seccomp` with its `policy`) and becomes one of the
`runners`.

Covered at every level: a process tree that dies as a whole, limits on memory, CPU time, files, disk and processes, a
scrubbed environment, a folder of its own, system calls by an allow-list, no network, a drained and capped log. At every
level but `rlimits`: files by an allow-list. Sandboxes that run at the same time share readable files and the machine.
Channels between them by a system call are closed: locks, leases, notifications, attributes, times, the page cache,
deduplicated memory, the machine's counters. NOT covered, because honest programs need the calls: futexes on pages of
shared libraries (a few dozen bits at a time), inode numbers of pipes and sockets, which are counted for the whole
machine (some ten bits), and durations. NOT covered. rlimits: a candidate reads what its user can read; it can leave
files where that user can write. landlock and rlimits: it sees the machine's processes; for an ordinary user before
landlock 6 it can signal the user's. Without cgroups memory is limited for each process and polled four times a second
for the tree. Bubblewrap is not used: where only Bubblewrap may create user namespaces, sandboxes reach landlock. Faults
of the kernel, side channels.
"""
