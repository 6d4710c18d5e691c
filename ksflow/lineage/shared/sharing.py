"""What a run shares through its remote, and when: a thread beside the rounds fetches, joins and pushes.

One process of a repository at a time does so, whichever is free; it pushes what the others did, too.
"""

import fcntl
import hashlib
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ksflow.errors import ConfigError, LineageError, counted
from ksflow.lineage import commit_message
from ksflow.lineage.shared.blocks import SIZE, Blocks
from ksflow.lineage.shared.join import Tie, joined, same_kernel, tie
from ksflow.lineage.shared.remote import SHARED, Push, Remote, Unreachable, lost_race
from ksflow.lineage.store import ZERO, Store
from ksflow.lineage.trial_index import TrialIndex, finished
from ksflow.records import Origin

CHAINS = ("sessions", "rounds", "calls", "notes", "verdicts")
_BEGIN_S = 30.0
"""How long a run that begins waits for the host that commits the seeds."""
_LOOK_S = 0.2
_ROUND_S = 2.0
"""How long a round waits for what other hosts did."""
_PACE_S = 1.0
"""From one look at the remote to the next that nobody waits for."""
_SHARE = 4.0
"""The same, as often as long as the last one took."""
_END_S = 20.0
"""How long a run that ends waits until all is pushed."""
_RACES = 10
"""Times in a row that other hosts may be faster."""
_RETRY_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Until a remote that could not be reached is asked again."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,150}")
_LOG = logging.getLogger("ksflow.lineage")


class Sharing:
    """Of one run in one process. `changed` is the lineage's lock: it is held for reading and moving refs alone."""

    def __init__(
        self, store: Store, run: str, index: TrialIndex, changed: threading.Condition, blocks: Blocks, url: str
    ) -> None:
        """`run`: `<problem>/<run>`. `blocks`: the ids of this host, which grow here."""
        heads, tags = f"refs/heads/{run}/", f"refs/tags/approved/{run}/"
        self._store, self._index, self._changed = store, index, changed
        self._heads, self._side, self._tags = heads, f"refs/ksflow/{run}/", tags
        self._host = blocks.host
        self._hosts = f"refs/hosts/{run}/"
        self._seeds = f"{self._side}ids/seeds"
        self.blocks = blocks
        shared = (heads, f"{self._side}ids/", tags, self._hosts)
        self.remote = Remote(url, store.path, [f"{prefix}*" for prefix in shared])
        self._tracked = store.ref_files(*(_seen(prefix) for prefix in shared))
        self._there: dict[str, str] = {}
        """Ref -> where it was on the remote when it was last looked at; of trials the name -> the tip."""
        self._unjoined: set[str] = set()
        """Branches whose tip here may lack what is on the remote."""
        self._apart: set[str] = set()
        """Branches that hold another kernel there: they stay as they are."""
        self._lock_file = store.path / "ksflow" / f"sharing-{hashlib.sha256(run.encode()).hexdigest()[:16]}"
        self._asked, self._done = 0, 0
        """How often a look at the remote was asked for; the newest of these that was answered, or failed."""
        self._wake = threading.Condition()
        self._waited = 0
        """The newest that somebody waits for, or waited."""
        self._next = 0.0
        """Until then the remote is looked at only where somebody waits for it."""
        self._ended = self._abandoned = False
        self._failures = 0
        self._refused: set[str] = set()
        """What the user was told already."""
        self._thread: threading.Thread | None = None

    # -- the call of a run -----------------------------------------------------------------------

    def begin(self) -> None:
        """Bring what is there, have a block of ids, and go on with that beside the rounds.

        A remote that cannot be reached is logged where this host has ids, else ConfigError.
        """
        what, remedy = "cannot be reached", "begin once while it can be"
        try:
            self.remote.probe()
            what, remedy = "answers, but takes no pushes", "have it take them"
            with self._alone():
                self._exchange(first=True)
        except Unreachable as error:
            if not self.blocks.own:
                raise ConfigError(
                    f"lineage.remote={self.remote.name} {what} ({error}), and this host has no ids of the run yet: "
                    f"{remedy}, or name a run of this host's own with run= and no remote"
                ) from error
            self._failed(error)
        self._thread = threading.Thread(target=self._work, name="sharing", daemon=True)
        self._thread.start()

    def request(self) -> int:
        """Have the remote looked at soon; the number that `wait` takes."""
        with self._wake:
            self._asked += 1
            self._wake.notify_all()
            return self._asked

    def catch_up(self) -> None:
        """Have what other hosts did here, where that takes no longer than a moment."""
        late, recent = self._done < self._waited, time.monotonic() < self._next
        number = self.request()
        if not (self._failures or late or recent):
            self._wait(number, _ROUND_S)

    def settle_seeds(self) -> None:
        """Return when this host may commit seeds: it is the one that does so, or those of that one are here."""
        end = time.monotonic() + _BEGIN_S
        while not self._failures and time.monotonic() < end:
            with self._changed:
                self._index.refresh()
                if any(trial.origin is Origin.SEED for trial in self._index.trials.values()):
                    return
            try:
                with self._alone():
                    if self._plants_seeds():
                        return
            except Unreachable as error:
                self._failed(error)
                return
            time.sleep(_LOOK_S)
            self._wait(self.request(), _ROUND_S)

    def close(self) -> None:
        """Push what is left, where the remote can be reached, and end the thread. Says what stays here."""
        if not self._thread:
            return
        with self._wake:
            self._ended = True
            number = self.request()
        self._wait(number, _END_S)
        self._abandoned, self._thread = self._done < number, None
        with self._changed:
            left = sum(push.ref.startswith(self._heads) for push in self._wanted())
        if left:
            _LOG.warning(
                "%s not on %s yet: the next call with lineage.remote= pushes them",
                counted(left, "trial"),
                self.remote.name,
            )

    # -- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        """Answer requests, and ask again where the remote could not be reached, until the run has ended."""
        while True:
            with self._wake:
                pause = _RETRY_S[min(self._failures, len(_RETRY_S)) - 1] if self._failures else None
                self._wake.wait_for(lambda: self._ended or (self._asked > self._done and not self._failures), pause)
                asked, ended, began = self._asked, self._ended, time.monotonic()
            try:
                with self._alone():
                    self._exchange()
                self._reached()
            except (Unreachable, LineageError, ConfigError, OSError) as error:
                self._failed(error)
            pause = _PACE_S if self._failures else max(_PACE_S, _SHARE * (time.monotonic() - began))
            with self._wake:
                self._done, self._next = asked, time.monotonic() + pause
                self._wake.notify_all()
                if ended:
                    return
                self._wake.wait_for(lambda: self._ended or self._waited > self._done, pause)

    def _wait(self, number: int, seconds: float) -> None:
        with self._wake:
            self._waited = max(self._waited, number)
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._done >= number, seconds)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            _LOG.warning("%s: %s; the run goes on here, and is shared again when that works", self.remote.name, error)

    def _reached(self) -> None:
        if self._failures:
            _LOG.warning("%s is reached again: what was done meanwhile is shared", self.remote.name)
        self._failures = 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Meanwhile no other process of this repository shares the run."""
        with self._lock_file.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- one exchange ----------------------------------------------------------------------------

    def _exchange(self, first: bool = False) -> None:
        """Fetch, join, take ids, push; again where another host was faster. Raises Unreachable."""
        for attempt in range(_RACES):
            self.remote.fetch()
            with self._changed:
                if self._abandoned:
                    raise Unreachable("the run has ended")
                self._join()
                self.blocks.refresh()
                if first and not self.blocks.known:
                    self._expect_same_run()
                due = self._due_blocks()
            if due and not self._take(due):
                continue
            with self._changed:
                wanted = self._wanted()
            refused = self.remote.push(wanted, atomic=not attempt) if wanted else {}
            with self._changed:
                self._look()
            if not refused or (attempt and not any(map(lost_race, refused.values()))):
                self._tell_refused(refused)
                return

    def _look(self) -> None:
        """Read what has changed of what was last seen of the remote."""
        for seen, commit in self._tracked.changes().items():
            name = f"refs/{seen.removeprefix(SHARED)}".removeprefix(self._heads)
            if commit:
                self._there[name] = commit
            else:
                self._there.pop(name, None)
            if commit and _NAME.fullmatch(name) and self._index.tip(name) != commit:
                self._unjoined.add(name)

    def _join(self) -> None:
        """Have what the remote has on the branches here, and a person's words on trials that nobody spoke of here."""
        self._look()
        self._index.refresh()
        created, moved = dict[str, str](), dict[str, tuple[str, str]]()
        for name in sorted(self._unjoined):
            there = self._there.get(name, "")
            here = self._index.tip(name) or self._index.unread.get(name)
            if here is None and there:
                created[name] = there
            elif here and there and (tip := self._tip(name, here, there)):
                moved[name] = tip, here
        self._unjoined = set()
        new = [(f"{self._heads}{name}", commit, ZERO) for name, commit in created.items()]
        if new and not self._store.move(new):  # somebody else made one of them just now
            for ref, commit, _ in new:
                if not self._store.move([(ref, commit, ZERO)]):
                    self._unjoined.add(ref.removeprefix(self._heads))
        for name, (tip, here) in moved.items():
            if not self._store.move([(f"{self._heads}{name}", tip, here)]):
                self._unjoined.add(name)
        spoken = self._store.refs(self._tags)
        for ref, tag in self._there.items():
            if ref.startswith(self._tags) and ref not in spoken:
                self._store.move([(ref, tag, ZERO)])
        self._index.refresh()
        self._changed.notify_all()

    def _tip(self, name: str, here: str, there: str) -> str:
        """Where a branch is to be moved to; empty where it stays."""
        how = tie(self._store, here, there)
        if how is Tie.BEHIND:
            return there
        if how is Tie.APART and same_kernel(self._store, here, there):
            return joined(self._store, here, there)
        if how is Tie.APART and name not in self._apart:
            self._apart.add(name)
            _LOG.warning("%s%s is another kernel on %s: it stays here as it is", self._heads, name, self.remote.name)
        return ""

    def _expect_same_run(self) -> None:
        """Raise ConfigError where the run there began elsewhere than the one here."""
        ids = [name for name in self._index.trials if name.isdecimal()]
        if self.blocks.taken and (self._apart or any(name not in self._there for name in ids)):
            raise ConfigError(
                f"{self._heads.removeprefix('refs/heads/').rstrip('/')} on lineage.remote={self.remote.name} began on "
                "another host, and the one here on this: join with a new lineage.path=, or name another with run="
            )

    def _due_blocks(self) -> list[int]:
        """The blocks of ids to be taken now: for ids that were given before the run was shared, or for new ones."""
        if self.blocks.own:
            return [self.blocks.next] if self.blocks.low else []
        if self.blocks.taken:
            return [self.blocks.next]
        ids = [int(name) for name in (*self._index.trials, *self._index.open) if name.isdecimal()]
        return sorted({number // SIZE for number in ids}) or [0]

    def _take(self, blocks: list[int]) -> bool:
        """Take blocks of ids. False where another host was faster."""
        with self._changed:
            mark = self._mark(f"ids {', '.join(map(str, blocks))}")
            refs = [self.blocks.ref(block) for block in blocks]
            if not self.blocks.taken and self._index.trials and not self._store.ref(_seen(self._seeds)):
                refs.append(self._seeds)  # they are here, and on their way
        refused = self.remote.push([Push(ref, mark, "") for ref in refs])
        self._tell_refused({ref: why for ref, why in refused.items() if not lost_race(why)})
        with self._changed:
            self.blocks.refresh()
        if refused and not any(map(lost_race, refused.values())):
            raise Unreachable(next(iter(refused.values())))
        return not refused

    def _plants_seeds(self) -> bool:
        """Whether this host is the one that commits the seeds: it says so now, or has said so."""
        with self._changed:
            if known := self._store.ref(_seen(self._seeds)):
                return self._store.trailer(known, "Host") == self._host
            mark = self._mark("seeds")
        return not self.remote.push([Push(self._seeds, mark, "")])

    def _mark(self, what: str) -> str:
        """A commit with this host's name that no other host makes."""
        text = commit_message.plain(f"{what} of {self._host}", "", {"Host": self._host})
        return self._store.commit(self._store.tree({}), (), text, int(time.time()))

    def _wanted(self) -> list[Push]:
        """What the remote lacks of what is to be shared."""
        wanted = list[Push]()
        waiting = self._apart | self._unjoined
        for name, trial in self._index.trials.items():
            tip, there = self._index.tip(name), self._there.get(name, "")
            shown = there or finished(trial) or trial.origin is Origin.SEED
            if tip != there and shown and name not in waiting:
                wanted.append(Push(f"{self._heads}{name}", tip, there))
        for chain in CHAINS:
            ref, tip = f"{self._hosts}{self._host}/{chain}", self._store.ref(f"{self._side}{chain}") or ""
            if tip and tip != self._there.get(ref, ""):
                wanted.append(Push(ref, tip, self._there.get(ref, "")))
        tags = self._store.refs(self._tags).items()
        return [*wanted, *(Push(ref, tag, "") for ref, tag in tags if ref not in self._there)]

    def _tell_refused(self, refused: dict[str, str]) -> None:
        """Say once what the remote does not take, and why."""
        for why in set(refused.values()) - self._refused:
            self._refused.add(why)
            refs = [ref for ref, said in refused.items() if said == why]
            _LOG.warning("%s does not take %s (%s): it stays here", self.remote.name, refs[0], why)


def _seen(ref: str) -> str:
    """Where a ref of the remote, or a folder of them, is kept as it was last seen."""
    return f"{SHARED}{ref.removeprefix('refs/')}"
