"""Every level that a box can be held at, tried from inside: as root, and as an ordinary user."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evaluator import boxes, toy
from ksflow.errors import ConfigError
from ksflow.evaluation.processes import child_environment
from ksflow.evaluation.processes.server_process import ServerProcess
from ksflow.evaluation.sandbox import levels, seccomp
from ksflow.home import PACKAGE
from ksflow.kernels.hardware import target
from ksflow.records import Kernel, Problem
from ksflow.stages.evaluator.local import LocalEvaluator

from .test_containment import processes

LOOK = """
import ctypes, json, os, pathlib, platform, socket, resource
libc = ctypes.CDLL(None, use_errno=True)
def error_of(action):
    try:
        action()
    except OSError as error:
        return error.errno
    return 0
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
machine = platform.machine() == "x86_64"
calls = {{
    "ptrace": (101 if machine else 117, 0, 0, 0, 0), "unshare": (272 if machine else 97, 0x10000000),
    "mount": (165 if machine else 40, 0, b"/", 0, 0, 0), "setns": (308 if machine else 268, 0, 0),
    "bpf": (321 if machine else 280, 0, 0, 0), "keyctl": (250 if machine else 219, 0, 0, 0),
    "io_uring_setup": (425, 1, 0), "userfaultfd": (323 if machine else 282, 0),
    "perf_event_open": (298 if machine else 241, 0, 0, -1, -1, 0), "clone3": (435, 0, 0), "unknown": (600,),
    "clone": (56 if machine else 220, 0x10000011, 0, 0, 0, 0),
}}
before = os.sched_getaffinity(0)
print(json.dumps({{
    "uid": os.getuid(),
    "capabilities": [line for line in open("/proc/self/status") if line.startswith("CapEff")][0].split()[1],
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "secret": error_of(lambda: open({secret!r}).read()),
    "escape": error_of(lambda: open({folder!r} + "/escaped", "w")),
    "system": error_of(lambda: open("/usr/escaped", "w")),
    "project": error_of(lambda: open({project!r}).read()),
    "own": error_of(lambda: open("mine", "w")),
    "tcp": error_of(lambda: socket.socket(socket.AF_INET)),
    "netlink": error_of(lambda: socket.socket(socket.AF_NETLINK)),
    "local": error_of(lambda: socket.socket(socket.AF_UNIX)),
    "interfaces": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
    "shared": error_of(lambda: open("/dev/shm/ksflow-left", "w")),
    "ipc": error_of(lambda: call(29 if machine else 194, 0, 4096, 0o1600)),
    "calls": {{name: error_of(lambda: call(*numbers)) for name, numbers in calls.items()}},
    "affinity": [error_of(lambda: os.sched_setaffinity(0, {{0}})), os.sched_getaffinity(0) == before],
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "environment": dict(os.environ),
}}))
"""
ORPHANS = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execv("/bin/sh", ["sh", "-c", "sleep 1000; : {mark}"])
    os._exit(0)
os.wait()
print("left")
"""
BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        os.execv("/bin/sleep", ["sleep", "1000", "{mark}"])
"""
MEMORY = """
import sys
kept = []
while True:
    kept.append(bytearray(b"x") * (8 << 20))
"""
DISK = """
import time
for number in range(200):
    with open(f"junk{number}", "wb") as file:
        file.write(bytes(1 << 20))
    time.sleep(0.01 if number < 50 else 1)
"""
CLOSED = "import os, time\nos.closerange(0, 4096)\ntime.sleep(0.05)\nos.kill(os.getpid(), 11)\n"
KILLER = "import os\nprint('killing', flush=True)\nos.kill(-1, 9)\n"


@dataclass
class Seen:
    """What became of the programs at one level."""

    level: str
    ordinary: bool
    done: dict[str, Any]
    look: dict[str, Any]
    mark: str
    folder: Path

    @property
    def private(self) -> bool:
        """Whether the box has namespaces and a root of its own."""
        return self.level in levels.PRIVATE

    @property
    def own_user(self) -> bool:
        """Whether the box's user is nobody else's."""
        return os.getuid() == 0 and not self.ordinary


HERE = levels.probe().level
CASES = [
    (level, ordinary)
    for ordinary in (False, True)
    for level in ("full", "userns", "landlock", "rlimits")
    if levels.LEVELS.index(level) <= levels.LEVELS.index(HERE)
    and not (level == "full" and ordinary)
    and (ordinary or os.getuid() == 0)
]
USUAL = (("full", False), ("userns", True), ("landlock", True))
PARAMS = [
    pytest.param(case, id=f"{case[0]}-{'user' if case[1] else 'root'}", marks=[] if case in USUAL else pytest.mark.slow)
    for case in CASES
]


@pytest.fixture(scope="module", params=PARAMS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    level, ordinary = request.param
    folder = Path(tempfile.mkdtemp(prefix="ksflow-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    secret = folder / "secret"
    secret.write_text("sesame")
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o755)
    mark = str(folder / "mark")
    look = LOOK.format(secret=str(secret), folder=str(folder), project=str(boxes.REPOSITORY / "pyproject.toml"))
    jobs = {
        "look": boxes.order(level, look),
        "orphans": boxes.order(level, ORPHANS.format(mark=mark)),
        "bomb": boxes.order(level, BOMB.format(mark=mark), wall_s=0.7),
        "memory": boxes.order(level, MEMORY, memory_mb=64),
        "disk": boxes.order(level, DISK, disk_mb=8),
        "closed": boxes.order(level, CLOSED),
    }
    if level != "rlimits" or not ordinary:
        jobs["killer"] = boxes.order(level, KILLER)
    jobs["after"] = boxes.order(level, "print('fine')")
    done = boxes.run(jobs, ordinary, temporary)
    assert not list(temporary.glob("ksflow-box-*"))
    yield Seen(level, ordinary, done, json.loads(done["look"]["log"] or "{}"), mark, folder)
    subprocess.run(["rm", "-rf", folder], check=True)


def test_own_files_only(seen: Seen) -> None:
    look = seen.look
    assert look["own"] == 0
    assert look["system"]
    assert look["escape"] or seen.level == "rlimits"
    assert not (seen.folder / "escaped").exists() or seen.level == "rlimits"
    if seen.level != "rlimits":
        assert look["secret"] in (errno.ENOENT, errno.EACCES)
        assert look["project"] in (errno.ENOENT, errno.EACCES)


def test_no_rights_and_little_to_see(seen: Seen) -> None:
    look = seen.look
    assert int(look["capabilities"], 16) & ~4 == 0
    assert look["uid"] not in (0, os.getuid()) or not seen.own_user
    assert look["processes"] < 6 or not seen.private
    assert look["core"] == [1, 1]
    assert boxes.SECRET not in str(look["environment"])
    assert not {"HOME", "TMPDIR"} - look["environment"].keys()
    assert look["environment"]["HOME"] == look["environment"]["TMPDIR"] != os.environ.get("HOME")


def test_no_network(seen: Seen) -> None:
    look = seen.look
    assert look["tcp"] == look["netlink"] == errno.EPERM
    assert look["local"] == (0 if seen.private else errno.EPERM)
    assert look["interfaces"] == ["lo"] or not seen.private


def test_system_calls_are_filtered(seen: Seen) -> None:
    calls = dict(seen.look["calls"])
    assert calls.pop("unknown") == calls.pop("clone3") == errno.ENOSYS
    assert set(calls.values()) == {errno.EPERM}, calls
    assert seen.look["affinity"] == [0, True]
    assert seen.look["ipc"] == (0 if seen.private else errno.EPERM)


def test_nothing_shared_is_left(seen: Seen) -> None:
    left = Path("/dev/shm/ksflow-left")
    if seen.level == "rlimits":
        left.unlink(missing_ok=True)
    assert not left.exists()


def test_whole_tree_is_killed(seen: Seen) -> None:
    assert "left" in seen.done["orphans"]["log"]
    assert seen.done["bomb"]["timed_out"] or "exit" in seen.done["bomb"]["words"]
    assert not processes(seen.mark)


def test_memory_is_limited_and_named(seen: Seen) -> None:
    done = seen.done["memory"]
    assert not done["timed_out"]
    assert "memory" in done["words"] or "MemoryError" in done["log"]


def test_disk_is_limited_and_named(seen: Seen) -> None:
    done = seen.done["disk"]
    assert not done["timed_out"]
    assert "disk" in done["words"]


def test_next_box_is_unaffected(seen: Seen) -> None:
    assert seen.done["closed"]["words"]["exit"] == str(128 + 11)
    assert seen.done["after"]["log"] == "fine\n"
    assert seen.done["after"]["words"]["exit"] == "0"


def test_layers_are_told(seen: Seen) -> None:
    layers = json.loads(seen.done["look"]["words"]["layers"])
    assert layers.keys() >= {"uid", "namespaces", "root", "network", "seccomp", "landlock", "limits"}
    assert layers["namespaces"].startswith("missing") is not seen.private
    assert layers["uid"].startswith("missing") is not seen.own_user


def groups() -> list[Path]:
    """Control groups of supervisors that are no more."""
    found = (Path(at, name) for at, names, _ in os.walk("/sys/fs/cgroup") for name in names)  # other tests' groups go
    dead = (path for path in found if re.fullmatch(r"ksflow-\d+", path.name))
    return [path for path in dead if not Path("/proc", path.name.rpartition("-")[2]).exists()]


READS = """
import errno, json, os, sys
here = {packages!r}
def found(path):
    try:
        return len(open(os.path.join(here, path), "rb").read(9))
    except OSError as error:
        return errno.errorcode[error.errno]
judge = "ksflow/evaluation/judge/check.py"
names = ("ksflow/problems/softmax/problem.yaml", judge, "ksflow/evaluation/sandbox/root.py", "other/file.py")
print(json.dumps([found(name) for name in names]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "ordinary"),
    [case.values[0] for case in PARAMS if case.values[0][0] != "rlimits"],  # type: ignore[index]
)
def test_an_installed_ksflow_shows_its_problems_to_nobody(level: str, ordinary: bool) -> None:
    """Held-out shapes are in a problem's folder, which is among the packages that a kernel may import."""
    with tempfile.TemporaryDirectory(prefix="ksflow-test-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        packages, temporary = folder / "site-packages", folder / "tmp"
        shutil.copytree(PACKAGE, packages / "ksflow", ignore=shutil.ignore_patterns("__pycache__"))
        (packages / "other").mkdir()
        (packages / "other" / "file.py").write_text("something")
        temporary.mkdir()
        job = boxes.order(level, READS.format(packages=str(packages)))
        done = boxes.run({"reads": job}, ordinary, temporary, packages)["reads"]
        *hidden, runner, other = json.loads(done["log"])
        assert set(hidden) <= {"ENOENT", "EACCES"}, hidden
        assert (runner, other) == (9, 9)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to see the environments of all boxes")
@pytest.mark.parametrize("after_s", [0.0, 0.003, 0.01, 0.03, 0.1])
def test_killed_parent_of_a_box_leaves_nothing(after_s: float, tmp_path: Path) -> None:
    mark = f"{tmp_path}/{after_s}"
    mounts, older = Path("/proc/mounts").read_text(), groups()  # a killed supervisor's group stays on the machine
    server = ServerProcess("ksflow.evaluation.compilers.server", {"MARK": mark, "TMPDIR": str(tmp_path)})
    server.ask(boxes.order(HERE, "pass"), 60)
    server.post({**boxes.order(HERE, "import time\ntime.sleep(100)"), "id": 0})
    time.sleep(after_s)
    os.kill(server.pid, 9)
    server.close()
    end = time.monotonic() + 100
    while (left := [*processes(mark), *(set(groups()) - set(older)), *tmp_path.iterdir()]) and time.monotonic() < end:
        time.sleep(0.02)
    assert not left
    assert Path("/proc/mounts").read_text() == mounts


STARTS = """
import errno, os, subprocess, threading, torch
asked, told = threading.Event(), threading.Event()
answers = []
def start(how):
    try:
        how()
        answers.append("started")
    except OSError as error:
        answers.append(os.strerror(error.errno))
def later():
    asked.wait()
    start(os.fork)
    told.set()
threading.Thread(target=later, daemon=True).start()
subprocess.run(["true"], check=True)
calls = []
def custom_kernel(data):
    calls.append(len(data[0]))
    if len(calls) == 40:
        asked.set(), told.wait()
        start(os.fork)
        start(lambda: subprocess.run(["true"]))
        start(lambda: os.posix_spawn("/bin/true", ["true"], {}))
        new = threading.Thread(target=answers.append, args=("thread",))
        new.start(), new.join()
        if answers != [os.strerror(errno.EAGAIN)] * 4 + ["thread"]:
            raise ValueError(answers)
    return torch.add(data[0], data[1], out=data[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["full", "rlimits"])
def test_processes_can_be_started_until_the_race(level: str, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread can be started at any time; for a process nothing inside the box is asked, so nothing there can lie."""
    monkeypatch.setenv("KSFLOW_ISOLATION", level)
    levels.probe.cache_clear()
    result = LocalEvaluator(target.detect())(problem, Kernel("python", {"k.py": STARTS}), ())
    levels.probe.cache_clear()
    assert result.accepted, result.reason
    assert result.isolation in (level, "userns")
    assert result.evidence.one_process


def test_foreign_calls_kill() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("only x86-64 has a second set of numbers")
    code = """
import ctypes
from ksflow.evaluation.sandbox import linux, seccomp
linux.no_new_privileges()
seccomp.restrict(private=True)
ctypes.CDLL(None).syscall(0x40000000 + 39)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -31


@pytest.fixture
def capped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(child_environment.ISOLATION, "rlimits")
    levels.probe.cache_clear()
    yield
    levels.probe.cache_clear()


def test_level_can_be_capped_and_the_floor_holds(capped: None) -> None:
    assert levels.probe().level == "rlimits"
    with pytest.raises(ConfigError, match=r"isolation_floor=landlock, but sandboxes reach only rlimits"):
        LocalEvaluator(target.detect(), isolation_floor="landlock")


@pytest.mark.slow
@pytest.mark.parametrize("level", ["userns", "landlock", "rlimits"])
def test_kernels_are_judged_at_every_level(level: str, problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(child_environment.ISOLATION, level)
    levels.probe.cache_clear()
    try:
        evaluator = LocalEvaluator(target.detect())
        shown: list[set[int]] = []
        for kernel in (toy.RIGHT_CPP, toy.RIGHT_PYTHON):
            result = evaluator(problem, kernel, ())
            assert result.accepted, result.reason
            assert result.isolation == level
            shown.append({seed for row in result.evidence.timed[:1] for seed in row.contents})
        assert not shown[0] & shown[1]  # a box could leave word for a later one
        evaluator.close()
    finally:
        levels.probe.cache_clear()


TELLS = """
import ctypes, fcntl, json, os, platform, struct, sys
from ksflow.evaluation.sandbox import linux, seccomp, syscalls
libc = ctypes.CDLL(None, use_errno=True)
def error_of(name, *arguments):
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return ctypes.get_errno() if libc.syscall(syscalls.numbers(name)[0], *wide) < 0 else 0
made = os.memfd_create("made")
shared = os.open(sys.executable, os.O_RDONLY)
linux.no_new_privileges()
seccomp.restrict(private=True, kind=sys.argv[1])
lock = struct.pack("hhqqi", fcntl.F_RDLCK, 0, 1 << 40, 1, 0)
room = ctypes.create_string_buffer(4096)
page = ctypes.create_string_buffer(8192)
print(json.dumps({
    "read lock": error_of("fcntl", shared, fcntl.F_SETLK, lock), "who locks": error_of("fcntl", shared, 5, room),
    "open lock": error_of("fcntl", shared, 37, lock), "lease": error_of("fcntl", shared, 1024, 0),
    "notify": error_of("fcntl", shared, 1026, 1), "hint": error_of("fcntl", made, 1036, room),
    "flock": error_of("flock", shared, 2), "attribute": error_of("fsetxattr", made, b"user.a", b"b", 1, 0),
    "its value": error_of("fgetxattr", made, b"user.a", room, 1), "watch": error_of("inotify_init1", 0),
    "cache": error_of("cachestat", shared, room, room, 0), "mincore": error_of("mincore", page, 1, room),
    "no wait": error_of("preadv2", shared, 0, 0, 0, 0, 8), "direct": error_of("openat", -100, b"/bin/sh", os.O_DIRECT),
    "advice": error_of("fadvise64", shared, 0, 0, 4), "merge": error_of("madvise", 0, 4096, 12),
    "all merge": error_of("prctl", 67, 1, 0, 0, 0), "policy": error_of("mbind", 0, 0, 99, 0, 0, 99),
    "timer": error_of("timer_create", 1, 0, room), "interval": error_of("setitimer", 0, room, 0),
    "timer file": error_of("timerfd_create", 1, 0), "own filter": error_of("seccomp", 1, 0, room),
    "asynchronous": error_of("io_setup", 1, room), "device": error_of("ioctl", made, 0xC0104600, room),
    "duplicate": error_of("fcntl", made, 0, 0), "flags": error_of("fcntl", made, 2, 1),
    "event": error_of("eventfd2", 0, 0),
    "seals": error_of("fcntl", made, 1034, 0), "huge": error_of("madvise", 0, 0, 14),
    "rename": error_of("prctl", 15, b"me"), "room": error_of("fallocate", made, 0, 0, 8192),
    "hole": error_of("fallocate", made, 3, 0, 4096), "remove": error_of("madvise", 0, 0, 9),
    "pair": error_of("socketpair", 1, 1, 0, room), "other pair": error_of("socketpair", 30, 1, 0, room),
}))
"""
REFUSED = {
    "who locks": errno.EINVAL,
    "lease": errno.EINVAL,
    "notify": errno.EINVAL,
    "hint": errno.EINVAL,
    "attribute": errno.EOPNOTSUPP,
    "its value": errno.EOPNOTSUPP,
    "watch": errno.ENOSYS,
    "cache": errno.ENOSYS,
    "mincore": errno.ENOSYS,
    "no wait": errno.ENOSYS,
    "direct": errno.EINVAL,
    "merge": errno.EINVAL,
    "all merge": errno.EINVAL,
    "timer": errno.ENOSYS,
    "interval": errno.ENOSYS,
    "timer file": errno.ENOSYS,
    "own filter": errno.ENOSYS,
    "asynchronous": errno.ENOSYS,
    "device": errno.ENOTTY,
    "other pair": errno.EAFNOSUPPORT,
    "hole": errno.EOPNOTSUPP,
    "remove": errno.EINVAL,
}
"""Calls by which boxes could tell each other something, or work while another is timed -> what they get."""


@pytest.mark.skipif(not seccomp.is_supported(), reason="needs a kernel that filters system calls")
def test_a_kernel_can_leave_word_for_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", TELLS, "kernel"], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout or "{}")
    assert {name: error for name, error in found.items() if error} == REFUSED, done.stderr


@pytest.mark.skipif(not seccomp.is_supported(), reason="needs a kernel that filters system calls")
def test_tools_may_lock_files_and_devices_are_spoken_to() -> None:
    errors = {}
    for kind in ("tool", "device", "profiler"):
        done = subprocess.run([sys.executable, "-c", TELLS, kind], capture_output=True, text=True, check=False)
        errors[kind] = json.loads(done.stdout or "{}")
    assert not errors["tool"]["read lock"]
    assert not errors["tool"]["watch"]
    assert errors["profiler"] == errors["tool"]
    assert errors["tool"]["policy"] == errors["device"]["policy"] == errno.EINVAL  # asked, and wrong
    assert errors["device"]["lease"] == errno.EINVAL
    assert errors["device"]["timer"] == errno.ENOSYS


COUNTERS = """
import os
numbers = ("/proc/meminfo", "/proc/stat", "/proc/vmstat", "/proc/sys/fs/file-nr", "/proc/uptime", "/proc/loadavg")
before = [open(name).read() for name in numbers]
kept = [os.memfd_create("one") for _ in range(100)]
moved = bytearray(b"x") * (32 << 20)
print(before == [open(name).read() for name in numbers], all(before), os.path.exists("/proc/self/status"))
try:
    os.utime("/dev/null")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("level", [level for level in ("full", "userns") if level in (HERE, "userns")])
@pytest.mark.skipif(HERE not in levels.PRIVATE, reason="needs a /proc of the box's own")
def test_counters_of_the_machine_stand_still(level: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ksflow-test-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        done = boxes.run({"look": boxes.order(level, COUNTERS)}, level == "userns", Path(name))
    assert done["look"]["log"].splitlines() == ["True True True", os.strerror(errno.EROFS)]


MEMORY_BY_CALL = """
import ctypes
import torch
libc = ctypes.CDLL(None)
def asked():
    room = ctypes.create_string_buffer(112)
    assert libc.sysinfo(room) == 0
    return room.raw
said = asked()
moved = bytearray(b"x") * (64 << 20)
print(said == asked(), any(said), libc.sysinfo(ctypes.c_void_p(8)))
def custom_kernel(data):
    return torch.add(data[0], data[1], out=data[2])
"""


@pytest.mark.skipif(HERE not in levels.PRIVATE, reason="needs a kernel that asks about calls")
def test_memory_and_load_of_the_machine_stand_still(evaluator: LocalEvaluator, problem: Problem) -> None:
    result = evaluator(problem, Kernel("python", {"k.py": MEMORY_BY_CALL}), ())
    assert result.accepted, result.reason
    assert result.evidence.log.splitlines()[0] == "True True -1"


TEMPORARIES = """
import resource
import torch
seen = []
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def custom_kernel(data):
    before = faults()
    for _ in range(2):
        once = torch.ones(1 << 19)
        twice = once + once
    seen.append(faults() - before)
    assert len(seen) < 8 or min(seen[-4:]) < 200, f"page faults of each call: {seen}"
    return torch.add(data[0], data[1], out=data[2])
"""


def test_memory_that_a_kernel_frees_is_its_own_in_the_next_call(evaluator: LocalEvaluator, problem: Problem) -> None:
    """As in a process that has run for a while, temporary arrays do not fault their pages in again in each call."""
    result = evaluator(problem, Kernel("python", {"k.py": TEMPORARIES}), ())
    assert result.accepted, result.reason
