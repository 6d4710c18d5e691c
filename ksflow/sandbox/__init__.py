"""What holds a candidate, or a compiler: stdlib only, forked from a process without secrets, killed as a tree.

    levels    full, userns, landlock, rlimits: what each is, and which one this machine reaches (tried out by `trial`)
    zygote    a process that has imported what a candidate needs (nothing, or torch) and forks on request
    keeper    one per box, outside: makes it, limits it (`cgroup`), watches it, kills it as a whole
    init      the first process inside: builds the root directory (`root`, `counters`), starts the candidate, reaps
    confine   what the candidate's process puts on itself: user, limits, `landlock`, `seccomp` with its `policy`
    alone     leaves the candidate's process alone in its box, before times are taken
    shim      the candidate's process: loads the kernel, calls it when told; `tool` runs a program instead
    loopback  the one network interface of boxes whose programs talk to each other (profilers)

Covered at every level: a process tree that dies as a whole, limits on memory, CPU time, files, disk and processes, a
scrubbed environment, a folder of its own, system calls by an allow-list, no network, a drained and capped log. At
every level but `rlimits`: files by an allow-list.

Boxes that run at the same time share the files that all may read, and the machine. What they could tell each other by
is gone where a call shows it: locks, leases, notifications, attributes, times, the page cache, memory used twice, the
machine's counters. NOT covered, because honest programs need the calls: waiting for and waking others on pages of
shared libraries (futexes; a few dozen bits at a time), inode numbers of pipes and sockets, which are counted for the
whole machine (some ten bits), and how long things take.

NOT covered. rlimits: a candidate reads what its user can read; it can leave files where that user can write. landlock
and rlimits: it sees the machine's processes; for an ordinary user before landlock 6 it can signal the user's. Without
control groups memory is limited for each process and looked at four times a second for the tree. Bubblewrap is not
used: where it alone may make user namespaces, boxes reach landlock. Faults of the kernel, side channels.
"""
