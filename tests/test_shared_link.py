"""Two hosts on one run, each in a network of its own, whose link is cut and joined."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex

import pytest
import warm
from conftest import until

RUN = ["recipe=dry_run", "llm=dummy", "problem=softmax", "loop.confirm=false"]


def call(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Networks:
    """Namespaces `one` and `two`, each with a link to this machine."""

    def __init__(self) -> None:
        self.tag, self.subnet = token_hex(3), int(token_hex(1), 16)

    def make(self) -> None:
        for number, name in enumerate(("one", "two")):
            space, here, there = self.space(name), f"k{self.tag}{number}h", f"k{self.tag}{number}g"
            call("ip", "netns", "add", space)
            call("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
            call("ip", "address", "add", f"{self.address(name)}/30", "dev", here)
            call("ip", "link", "set", here, "up")
            inside = ["ip", "netns", "exec", space, "ip"]
            call(*inside, "address", "add", f"10.213.{self.subnet}.{4 * number + 2}/30", "dev", there)
            call(*inside, "link", "set", there, "up")

    def space(self, name: str) -> str:
        return f"ksflow-{self.tag}-{name}"

    def address(self, name: str) -> str:
        return f"10.213.{self.subnet}.{1 if name == 'one' else 5}"

    def link(self, name: str, state: str) -> None:
        call("ip", "link", "set", f"k{self.tag}{0 if name == 'one' else 1}h", state)

    def remove(self) -> None:
        for name in ("one", "two"):
            subprocess.run(["ip", "netns", "delete", self.space(name)], check=False, capture_output=True)


@pytest.fixture
def networks() -> Iterator[Networks]:
    made = Networks()
    try:
        made.make()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        made.remove()
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.remove()


@pytest.fixture
def served(tmp_path: Path, networks: Networks) -> Iterator[Path]:
    """A bare repository behind `git daemon`."""
    path = tmp_path / "served" / "team.git"
    call("git", "init", "--quiet", "--bare", str(path))
    options = ["--reuseaddr", "--export-all", "--enable=receive-pack", f"--base-path={path.parent}"]
    with ExitStack() as stack:
        for name in ("one", "two"):
            listen = f"--listen={networks.address(name)}"
            daemon = stack.enter_context(subprocess.Popen(["git", "daemon", *options, listen, str(path.parent)]))
            stack.callback(daemon.terminate)
        yield path


def heads(path: Path) -> dict[str, str]:
    rows = call("git", "-C", str(path), "for-each-ref", "--format=%(refname:lstrip=4) %(objectname)", "refs/heads/")
    return dict(row.split() for row in rows.splitlines())


def of_host(names: dict[str, str], number: int) -> set[str]:
    """The ids of a host's block."""
    return {name for name in names if int(name) // 10_000 == number}


@pytest.mark.slow
@pytest.mark.soak
def test_two_hosts_whose_link_is_cut_and_joined_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, networks: Networks, served: Path
) -> None:
    folders = {name: tmp_path / name for name in ("one", "two")}
    lineages = {name: folder / "runs" / "lineage.git" for name, folder in folders.items()}

    def begin(name: str, *more: str) -> "subprocess.Popen[str]":
        folders[name].mkdir(exist_ok=True)
        url = f"lineage.remote=git://{networks.address(name)}/team.git"
        command = ["ip", "netns", "exec", networks.space(name), sys.executable, "-m", "ksflow", *RUN, url, *more]
        with (folders[name] / "said").open("a") as said:
            return subprocess.Popen(command, cwd=folders[name], stdout=said, stderr=said, text=True)

    def end(process: "subprocess.Popen[str]", name: str) -> None:
        assert process.wait(120) == 0, (folders[name] / "said").read_text()[-3000:]

    with begin("one", "loop.evaluations=100000") as one, begin("two", "loop.evaluations=100000") as two:
        try:
            until(lambda: all(len(of_host(heads(served), number)) > 6 for number in (0, 1)))
            networks.link("two", "down")
            cut = heads(served)
            until(lambda: "goes on here" in (folders["two"] / "said").read_text())
            until(lambda: len(heads(lineages["two"])) > len(cut) + 4)
            until(lambda: len(heads(served)) > len(cut) + 4)
            alone = set(heads(lineages["two"])) - set(heads(served))
            assert alone
            networks.link("two", "up")
            until(lambda: alone <= heads(served).keys())
        finally:
            one.send_signal(signal.SIGINT)
            two.send_signal(signal.SIGINT)
        end(one, "one")
        end(two, "two")
    url = f"lineage.remote=git://{networks.address('one')}/team.git"
    done = warm.run(folders["one"], [*RUN, url, "loop.evaluations=0"], dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert (folders["two"] / "said").read_text().count("goes on here") == 1
    assert heads(served) == heads(lineages["one"]) == heads(lineages["two"])
    given = Counter[str]()
    for path in lineages.values():
        left = call("git", "-C", str(path), "for-each-ref", "--format=%(refname)", "refs/ksflow/softmax/dry/open/")
        given.subtract(ref.rpartition("/")[2] for ref in left.split())  # interrupted, for its host's next call
        chain = call("git", "-C", str(path), "log", "--format=%s", "refs/ksflow/softmax/dry/rounds")
        for subject in re.findall(r"^(?:plan|repair as) (.*)$", chain, re.MULTILINE):
            given.update(re.findall(r"\d{5,}", subject))
    assert set(given.values()) <= {0, 1}
    assert (+given).keys() <= heads(served).keys()
    assert len(heads(served).keys() - given.keys()) == 4  # the seeds
    commits = call("git", "-C", str(served), "log", "--branches", "--format=%(trailers:key=Trial,valueonly,separator=)")
    steps = Counter(commits.split())
    assert {steps[name] for name in +given} == {2}  # written, judged
    for path in (served, *lineages.values()):
        call("git", "-C", str(path), "fsck", "--strict")
        words = ["lineage", "problem=softmax", "run=dry", f"lineage.path={path}"]
        tree = warm.run(tmp_path, words, {**os.environ, "COLUMNS": "160"}).stdout
        assert all(name in tree for name in heads(served))
