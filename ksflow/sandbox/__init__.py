"""What holds a candidate, or a compiler: standard library only, forked from a process without secrets.

In: an order (JSON: files, limits, level, how the kernel is called) and descriptors. Out: words on how it ended.
`levels` says how well this machine can hold it (`probe` tries). A `zygote` forks a `supervisor` for each sandbox, which
limits it (`cgroup`), and starts its `init`: that builds the `root` directory and forks the candidate's process, which
confines itself (`confine`: user, limits, `landlock`, `seccomp` with its `policy`) and becomes one of the `runners`.

Covered at every level: a process tree that dies as a whole, limits on memory, CPU time, files, disk and processes, a
scrubbed environment, a folder of its own, system calls by an allow-list, no network, a drained and capped log. At
every level but `rlimits`: files by an allow-list.

Sandboxes that run at the same time share the files that all may read, and the machine. What they could tell each other
by is gone where a call shows it: locks, leases, notifications, attributes, times, the page cache, memory used twice,
the machine's counters. NOT covered, because honest programs need the calls: waiting for and waking others on pages of
shared libraries (futexes; a few dozen bits at a time), inode numbers of pipes and sockets, which are counted for the
whole machine (some ten bits), and how long things take.

NOT covered. rlimits: a candidate reads what its user can read; it can leave files where that user can write. landlock
and rlimits: it sees the machine's processes; for an ordinary user before landlock 6 it can signal the user's. Without
control groups memory is limited for each process and looked at four times a second for the tree. Bubblewrap is not
used: where it alone may make user namespaces, sandboxes reach landlock. Faults of the kernel, side channels.
"""
