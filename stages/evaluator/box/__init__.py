"""What holds a candidate: stdlib only, forked from a zygote, killed as a tree.

    zygote   a process that has imported what a candidate needs (nothing, or torch) and forks on request
    keeper   one per box: trusted, reaps and kills everything its box ever started
    shim     the candidate's own process: confines itself, loads the kernel, calls it when told

Covered: own process and session, own uid where the judge is root, limits on memory, CPU time, file size, files and
processes, an environment and a folder of its own, a drained and capped log, death of the whole tree, orphans
included. NOT covered yet: namespaces, seccomp, landlock, network, a read-only file system; without root a candidate
runs as the user and can read the user's files and signal the user's processes. `confine.py` is where layers are added.
"""
