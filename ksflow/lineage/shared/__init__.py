"""One run on several hosts: its trials go through an ordinary git remote, and no host waits for another.

    this host                     the remote (`lineage.remote=`)              another host
    refs/heads/<p>/<r>/<id>  ───► refs/heads/<p>/<r>/<id>  ─────────────────► refs/heads/<p>/<r>/<id>
    refs/ksflow/<p>/<r>/*    ───► refs/hosts/<p>/<r>/<host>/*  (kept apart)
    refs/tags/approved/*     ───► refs/tags/approved/*  ────────────────────► the same, where it has none of its own
                                  refs/ksflow/<p>/<r>/ids/<n>   whose the ids n·10000+1 to n·10000+9999 are
                                  refs/ksflow/<p>/<r>/ids/seeds who commits the seeds
    refs/remotes/shared/*    ◄─── all of them as they were last seen there

Ids cannot collide. A host has a block of ids before it gives the first: a push that may only create
`ids/<n>` decides whose it is, and the next block is taken long before the last is used up. So a host that is
off-line goes on with ids of its own, nothing is ever renamed, and parents, notes, transcripts and lessons stay right.
A host that never reached the remote has no block and cannot begin; neither can one whose run began elsewhere.

A trial is durable here first, then finished (judged, or failed), and only then pushed: nobody writes or judges what
another host is at work on. The seeds alone are pushed before they are judged, so that they are there once; each host
judges those that it finds unjudged. Every push says what it expects to find (`--force-with-lease=REF:OLD`, nothing for
a new one). Where two hosts have added to one branch (a kernel confirmed on both), the later one puts its commits on top
of the other's, each with its first version as second parent: no commit that somebody cites goes away.

What stays each host's own: `HEAD` and the winner's files; notes and lessons (a digest reads every host's trials);
transcripts, rounds and sessions (other hosts' are fetched, for git to read); budgets (`loop.usd` is what one call on
one host may spend); locks and claims, which are of processes of one machine. Sessions are numbered from n·10000 on, so
the steps of two hosts are told apart.

All this goes on beside the rounds, in a thread. A round waits for it two seconds at most, and not at all while the
remote cannot be reached: that is said once, in one line, what is done stays here, and it is pushed when it can be.
Credentials are git's own (helpers, ssh agents); a URL with one in it is refused. What is fetched is read as any pushed
branch is: parsed, bounded, passed over where it is damaged. A remote is trusted as far as its verdicts
(`docs/trust.md`).

    host      who this repository is              blocks    the ids that are its own
    remote    git's commands, with time limits    join      two histories of one branch
    sharing   what goes when, and the thread
"""
