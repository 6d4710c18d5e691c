"""The judge of GPU kernels, whole, on a GPU that the CPU plays: gates, turns, two clocks, claims, containment.

What a real chip does is judged on one: `benchmarks/device.py` with `tests/corpus/device`.
"""

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluator import gpu_toy, test_in_place, toy
from evaluator.conftest import in_the_end
from ksflow.errors import ConfigError
from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.device import Device, DeviceStuck
from ksflow.evaluation.judge.device_backend import DeviceTimedKernel, ranked_window
from ksflow.evaluation.judge.device_sandbox import DeviceCall, DeviceSandbox
from ksflow.evaluation.judge.samples import Samples
from ksflow.evaluation.processes import device_lock
from ksflow.evaluation.profiling.inspector import Inspector
from ksflow.evaluation.profiling.tool_sandbox import WORKLOAD
from ksflow.evaluation.sandbox import linux
from ksflow.evaluation.sandbox.driver import DriverError, open_driver
from ksflow.records import Case, Evaluation, Kernel, Problem, Target, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

EMULATED = Target("emulated", "gpu", "emulated GPU", march="emulated")
ADD = "torch.add(*data[:2], out=data[2])"
TRUE_US = 3000
BOX = """
import os, sys, threading, time
import torch

frame = sys._getframe()
while "gate" not in frame.f_locals:
    frame = frame.f_back
gate, judge = frame.f_locals["gate"], frame.f_locals["judge"]
driver = gate.driver
submit, wait = driver.submit, driver.wait
"""
"""What a kernel may get hold of in its process: all there is."""

Judge = Callable[..., Evaluation]


def kernel(body: str = "", before: str = "", us: int = TRUE_US) -> Kernel:
    """Right, and takes so long on the device, but for what else it does."""
    return toy.python(f"time.sleep({us * 1e-6})\n{ADD}\n{body}\nreturn data[2]", BOX + before)


HONEST = kernel()


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """Vector addition, one case each."""
    made = toy.problem(tmp_path_factory.mktemp("add"))
    return replace(made, languages=("python",), tests=made.tests[2:], benchmarks=(Case("n4096", {"n": 4096}, 6),))


@pytest.fixture(scope="module")
def device() -> Iterator[LocalEvaluator]:
    """On the emulated GPU."""
    made = LocalEvaluator(EMULATED)
    yield made
    made.close()


def test_a_bad_access_is_looked_at_by_compute_sanitizer_which_tells_the_line(
    device: LocalEvaluator, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = toy.python('raise RuntimeError("CUDA error: an illegal memory access was encountered")')
    (name,), (case, *_) = crashing.files, problem.tests
    line = next(n for n, text in enumerate(crashing.main.splitlines(), 1) if "raise" in text)
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()  # tmp_path itself is closed to other users, of whom a box has one
    tool.write_text(
        f"""#!/bin/sh
[ "$2" = memcheck ] && grep -q '"case": "{case.name}"' {WORKLOAD} || exit 1
echo '========= Invalid __global__ write of size 4 bytes'
echo '=========     at add(const float *)+0x70 in /some/where/{name}:{line}'
echo '=========     and is 1 bytes after the nearest allocation at 0x7f5c92600000 of size 4000 bytes'
echo '========= ERROR SUMMARY: 1 error'
"""
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    assert "bytes" not in device(problem, crashing, ()).reason
    monkeypatch.setattr(device, "_inspect", Inspector(profile=False, sanitize=True))
    found = device(problem, crashing, ())
    assert found.verdict is Verdict.CRASH
    said = f" in {name}, line {line}: invalid global write of 4 bytes, 1 bytes after the nearest allocation: raise Runt"
    assert said in found.reason


@pytest.fixture
def emulated() -> Device:
    """The emulated GPU as the judge has it."""
    return Device("emulated")


@pytest.fixture
def judge(device: LocalEvaluator, problem: Problem) -> Judge:
    """Kernel, and what to compare it with -> evaluation."""

    def evaluate(kernel: Kernel, *versus: Kernel) -> Evaluation:
        trials = tuple(toy.trial(other, f"{index:05d}") for index, other in enumerate(versus))
        return device(problem, kernel, trials)

    return evaluate


@pytest.fixture
def danger(judge: Judge) -> Iterator[Judge]:
    """Whatever it was that is judged: the next kernel is judged as ever."""
    yield judge
    honest_time(judge(HONEST))


def honest_time(result: Evaluation) -> None:
    """Accepted, for what the kernel takes: never for less, but perhaps for more on a machine that others use too."""
    assert result.accepted, result.reason
    assert result.score_us is not None
    assert result.score_us > 0.9 * TRUE_US


# -- honest kernels --------------------------------------------------------------------------------


@pytest.mark.slow
def test_honest_kernel_is_accepted_at_its_true_time_by_its_events(judge: Judge) -> None:
    """Long enough for what else is done on the machine to be a small part of it."""
    true_us = 100_000

    def true(result: Evaluation) -> bool:
        honest_time(result)
        (row,) = result.evidence.timed
        assert result.evidence.device == "emulated GPU"
        short = 0 < result.evidence.transfer["null_turn_us"] < true_us
        events = bool(row.gated) and row.clock == "device events"
        return short and events and 0.9 * true_us < (result.score_us or 0) < 1.5 * true_us

    in_the_end(lambda: judge(kernel(us=true_us)), true)


def test_short_kernel_has_many_calls_in_a_turn(judge: Judge) -> None:
    def short(result: Evaluation) -> bool:
        assert result.accepted, result.reason
        return result.evidence.timed[0].calls > 1 and (result.score_us or TRUE_US) < TRUE_US / 3

    in_the_end(lambda: judge(toy.python(f"{ADD}\nreturn data[2]")), short)


def test_kernel_that_returns_a_tensor_of_its_own_is_right(judge: Judge) -> None:
    assert judge(toy.python("return data[0] + data[1]")).accepted


def test_what_a_kernel_changes_in_place_is_restored_before_every_call(device: LocalEvaluator, tmp_path: Path) -> None:
    problem = replace(test_in_place.write(tmp_path, "add"), languages=("python",))
    change = "y, x, total = data\ntorch.sum(y, 1, out=total)\nif WHEN: y.add_(x, alpha=0.5)\nreturn total"
    assert device(problem, toy.python(change.replace("WHEN", "True")), ()).accepted
    for when in ("False", "next(calls) < 5"):
        wrong = toy.python(change.replace("WHEN", when), "import itertools, torch\ncalls = itertools.count()")
        found = device(problem, wrong, ())
        assert found.verdict is Verdict.INCORRECT, found.reason
        assert "were left as they were before the call" in found.reason


def test_kernel_that_waits_for_the_device_has_its_gate_opened(judge: Judge) -> None:
    waits = "driver.submit = lambda call: (submit(call), driver.synchronize())"
    result = judge(kernel(before=waits))
    honest_time(result)
    assert not result.evidence.timed[0].gated


@pytest.mark.slow
def test_faster_kernel_wins_and_the_same_one_does_not(judge: Judge) -> None:
    slower = kernel(us=2 * TRUE_US)
    assert not judge(HONEST, HONEST).evidence.claim.faster
    won = in_the_end(lambda: judge(HONEST, slower), lambda result: bool(result.evidence.claim.faster))
    assert 1.4 < won.evidence.claim.speedup < 2.6


# -- cheats ----------------------------------------------------------------------------------------

_AHEAD = """
import ctypes
opens_at = [0]
def wait_too(word, turn):
    opens_at[0] = turn
    wait(word, turn)
driver.wait = wait_too
def opened():
    return ctypes.c_uint32.from_address(gate.word).value >= opens_at[0]
def early(call, data):
    call()
def zeroed(call, data):
    data[2].zero_()
    submit(call)
def inputs_there(call, data):
    before = data[0].clone()
    def work():
        while not opened() and torch.equal(before, data[0]):
            time.sleep(10e-6)
        call()
    thread = threading.Thread(target=work)
    thread.start()
    submit(thread.join)
def instead(how):
    def queue(call):
        held = [cell.cell_contents for cell in getattr(call, "__closure__", None) or ()]
        data = [value for value in held if isinstance(value, tuple)]
        how(call, data[0]) if data else submit(call)
    driver.submit = queue
"""
_EARLY = """
import ctypes
def word(turn):
    ctypes.c_uint32.from_address(gate.word + 64).value = turn
"""
INCORRECT = {
    "value": toy.python("return torch.add(data[0], data[1], alpha=1.001, out=data[2])"),
    "nothing": toy.python("return data[2]"),
    "inputs": kernel("data[0][0] += 1"),
    "latest contents": toy.python(
        "out = last[-1] if last else data[0] + data[1]\nlast.append(data[0] + data[1])\nreturn out",
        "import torch\nlast = []",
    ),
    "computed before the inputs are there": kernel(before=_AHEAD + "instead(early)"),
    "adds to zeros written while it was queued": toy.python(
        "return data[2].add_(data[0] + data[1])", BOX + _AHEAD + "instead(zeroed)"
    ),
}


EARLY = {
    "changes its outputs later": kernel("threading.Timer(0.004, data[2].add_, (1,)).start()"),
    "word when queued": kernel(before=_EARLY + "driver.wait = lambda at, turn: (wait(at, turn), word(turn))"),
    "word when the gate opens": kernel(
        before=_EARLY + "driver.wait = lambda at, turn: (wait(at, turn), submit(lambda: word(turn)))"
    ),
}


@pytest.mark.parametrize("cheat", EARLY.values(), ids=EARLY.keys())
def test_word_that_is_given_too_early_is_rejected(judge: Judge, cheat: Kernel) -> None:
    """For its outputs, or since its events then say more than the judge saw."""
    assert judge(cheat).verdict in (Verdict.INCORRECT, Verdict.CHEAT)


def test_work_that_is_done_after_the_stream_has_ended_is_a_cheat(judge: Judge) -> None:
    """Its outputs are right when the judge copies them."""
    queued = (
        "write = driver.write\ndriver.write = lambda *word: (submit(lambda: late.pop()()), write(*word))\nlate = []"
    )
    result = judge(toy.python(f"late.append(lambda: {ADD})\nreturn data[2]", BOX + queued))
    assert (result.verdict, "after its stream had ended" in result.reason) == (Verdict.CHEAT, True), result.reason


@pytest.mark.parametrize("cheat", INCORRECT.values(), ids=INCORRECT.keys())
def test_wrong_answer_is_rejected(judge: Judge, cheat: Kernel) -> None:
    result = judge(cheat)
    assert result.verdict is Verdict.INCORRECT, (result.verdict, result.reason)
    assert result.evidence.failed["case"] in result.reason


CLAIMS = {
    "not a number": "math.nan",
    "infinite": "math.inf",
    "nothing": "0.0",
    "negative": "-1e300",
    "more than it had the device": "1e9",
    "cancelling": "-1e20 * (1 + len(claimed) % 2)",
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
@pytest.mark.parametrize("at", ["candidate", "rival"])
def test_time_that_no_call_can_take_is_a_cheat(judge: Judge, claim: str, at: str) -> None:
    """Whoever says it; to the caller it is a verdict, or a rival that was skipped."""
    liar = kernel(before=f"import math\nclaimed = []\ndriver.elapsed_us = lambda *_: (claimed.append(1), {claim})[1]")
    if at == "rival":
        result = judge(HONEST, liar)
        assert result.accepted, result.reason
        assert "for a call that took at most" in result.evidence.skipped["00000"]
        return
    result = judge(liar)
    assert result.verdict is Verdict.CHEAT, (result.verdict, result.reason)
    assert "for a call that took at most" in result.reason


@pytest.mark.slow
def test_forged_times_do_not_count(danger: Judge) -> None:
    """Long enough for what turning to the box takes here to be a small part of it."""
    true_us = 30_000
    forged = kernel(before="driver.elapsed_us = lambda before, after: 1.0", us=true_us)
    result = danger(forged, kernel(us=true_us))
    assert result.accepted, result.reason
    assert (result.score_us or 0) > 0.9 * true_us
    assert "judge" in result.evidence.timed[0].clock
    assert result.evidence.timed[0].events_us < true_us / 10
    assert not result.evidence.claim.faster


def test_work_started_when_the_inputs_appear_gains_nothing(danger: Judge) -> None:
    result = danger(kernel(before=_AHEAD + "instead(inputs_there)"))
    assert result.accepted, result.reason
    assert (result.score_us or 0) > 0.75 * TRUE_US


def test_answer_that_nobody_asked_for_is_a_cheat(danger: Judge) -> None:
    result = danger(kernel("judge.send(b'ready')"))
    assert result.verdict is Verdict.CHEAT
    assert "no request" in result.reason


def test_memory_shared_with_the_judge_cannot_be_cut(danger: Judge) -> None:
    cut = """
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        os.ftruncate(fd, 0)
    except OSError:
        pass
"""
    result = danger(kernel(before=cut))
    honest_time(result)


# -- dangers ---------------------------------------------------------------------------------------

CONTAINED = {
    "raises": ("raise ValueError('no such tile')", Verdict.CRASH, "no such tile"),
    "segfault": ("import ctypes; ctypes.string_at(0)", Verdict.CRASH, "SIGSEGV"),
    "exit": ("sys.exit(3)", Verdict.CRASH, "status 3"),
    "quiet exit": ("os._exit(0)", Verdict.CRASH, "status 0"),
    "kills itself": ("os.kill(os.getpid(), 9)", Verdict.CRASH, "SIGKILL"),
    "hang": ("while True: time.sleep(0.01)", Verdict.TIMEOUT, "3 s"),
}


@pytest.mark.slow
def test_word_that_is_taken_back_holds_nobody_up(device: LocalEvaluator, problem: Problem) -> None:
    """Its judge does not wait for a word that the kernel's thread keeps from it."""
    takes_back = """
def taken_back():
    while True:
        word(0)
"""
    start = "threading.Thread(target=taken_back, daemon=True).start()\nwhile True: time.sleep(0.01)"
    stuck = kernel(start, _EARLY + takes_back)
    result = device(replace(problem, limits=toy.HASTY), stuck, ())
    assert result.verdict is Verdict.TIMEOUT, (result.verdict, result.reason)
    honest_time(device(problem, HONEST, ()))


@pytest.mark.parametrize(("body", "verdict", "word"), CONTAINED.values(), ids=CONTAINED.keys())
@pytest.mark.usefixtures("danger")
def test_bad_end_is_contained(device: LocalEvaluator, problem: Problem, body: str, verdict: Verdict, word: str) -> None:
    limits = toy.HASTY if verdict is Verdict.TIMEOUT else problem.limits
    result = device(replace(problem, limits=limits), kernel(body), ())
    assert result.verdict is verdict, (result.verdict, result.reason)
    assert word in result.reason


def test_end_in_the_middle_of_a_race_is_contained(danger: Judge) -> None:
    count = "calls = []"
    result = danger(kernel("calls.append(1)\nif len(calls) > 20: os._exit(7)", count))
    assert result.verdict is Verdict.CRASH
    assert "status 7" in result.reason
    assert result.evidence.phase == "time"


@pytest.mark.slow
def test_opponent_that_fails_is_skipped(judge: Judge) -> None:
    result = judge(HONEST, kernel("raise ValueError('broken')"))
    honest_time(result)
    assert "ValueError" in result.evidence.skipped["00000"]


# -- the device ------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [2, 3, 4, 7, 0])
def test_mean_is_ranked_where_calls_differ_in_what_they_cost(every: int) -> None:
    """every: which call is twice as dear; 0: calls at random, one in four of them."""
    draw = random.Random(0)
    calls = [draw.gauss(40, 0.2) * (1 + (draw.random() < 0.25 if not every else n % every == 0)) for n in range(84)]
    assert statistics.low_mean(calls, ranked_window(calls)) > 0.97 * sum(calls) / len(calls)


def test_usual_call_is_ranked_where_calls_cost_the_same() -> None:
    draw = random.Random(0)
    calls = [draw.gauss(40, 0.2) for _ in range(84)]
    calls[5] = 4000
    assert ranked_window(calls) == statistics.MIDDLE


@pytest.mark.parametrize(
    ("late", "delayed", "believed"),
    [(0, 0, True), (4, 0, False), (0, 5, True), (4, 5, False), (0, 1, False)],
    ids=["honest", "every fourth call ends late", "a time slice before some calls", "both", "before all calls"],
)
def test_work_that_ends_late_in_some_calls_is_charged_to_all(late: int, delayed: int, believed: bool) -> None:
    """The events say 20 µs in every call; the judge's clock says 24, and 324 in each call whose work ends late. In each
    call of `delayed` ones the judge's own work is 2 ms late."""
    draw = random.Random(0)
    overhead = [draw.gauss(300, 2) for _ in range(96)]
    brackets = [324 + draw.gauss(0, 2) + 300 * bool(late and n % late == 0) for n in range(96)]
    timed = object.__new__(DeviceTimedKernel)
    timed.sandbox = types.SimpleNamespace(trusted=False)  # type: ignore[assignment]
    own = [10.0 + 2000 * bool(delayed and n % delayed == 0) for n in range(96)]
    timed._calls = [DeviceCall(*call, 20.0, True) for call in zip(brackets, own, strict=True)]
    timed.samples = Samples(us=[20.0] * 96, window=statistics.MIDDLE)
    timed._conclude([DeviceCall(switching + 1, 10.0, 1.0, True) for switching in overhead])
    us = timed.samples.low_mean()
    assert (us < 25) if believed else (80 < us < 125 or delayed == 1), us


def test_box_has_the_file_of_its_own_card_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"]
    monkeypatch.setattr(device_lock.os, "listdir", lambda _: names)
    monkeypatch.setattr(device_lock.os.path, "exists", lambda path: path.removeprefix("/dev/") in names)
    assert device_lock.device_files("/dev/nvidia1") == ("/dev/nvidia-uvm", "/dev/nvidia1", "/dev/nvidiactl")
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia10"} <= set(device_lock.device_files())


@pytest.mark.parametrize(
    ("others", "ends_with_it", "kind"), [([], True, "cheat"), ([], False, "harness"), ([77], True, "harness")]
)
def test_busy_device_is_the_sandboxs_fault_only_where_nobody_else_is_there(
    others: list[int], ends_with_it: bool, kind: str
) -> None:
    closed: list[bool] = []
    box: Any = types.SimpleNamespace(
        device=types.SimpleNamespace(others=lambda: others),
        close=lambda: closed.append(True),
        _quiet_soon=lambda _: bool(closed) and ends_with_it,
    )
    failure = DeviceSandbox._busy(box)
    assert failure.kind == kind
    assert ("process 77" in failure.text) is bool(others)


def test_processes_below_the_judge_and_those_that_cannot_be_seen_are_not_others(emulated: Device) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        listed = [os.getpid(), child.pid, os.getppid(), 1 << 30]
        emulated.state = types.SimpleNamespace(processes=lambda: listed)  # type: ignore[assignment]
        assert emulated.others() == [os.getppid()]
        child.kill()


def test_device_that_does_not_come_back_is_told(emulated: Device) -> None:
    word = ctypes.c_uint32(0)
    emulated.driver.wait(ctypes.addressof(word), 1)
    with pytest.raises(DeviceStuck, match="end other processes that use"):
        emulated.settle(0.2)
    word.value = 1
    emulated.settle()


def test_driver_that_does_not_return_ends_the_judge_with_the_cause() -> None:
    code = """
import time
from ksflow.evaluation.judge import device
device._STUCK_S = device._LOOK_S = 0.1
with device.Watchdog().step():
    time.sleep(600)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("the device's driver does not return from a call")


@pytest.mark.slow
def test_steps_that_end_in_time_end_nothing() -> None:
    code = """
import time
from ksflow.evaluation.judge import device
device._STUCK_S = device._LOOK_S = 0.05
watchdog = device.Watchdog()
for _ in range(3):
    with watchdog.step(60.0):
        time.sleep(0.2)
    time.sleep(0.2)
"""
    assert not subprocess.run([sys.executable, "-c", code], check=False).returncode


@pytest.mark.slow
def test_no_kernel_is_blamed_for_the_null_kernels_end(device: LocalEvaluator, judge: Judge) -> None:
    honest_time(judge(HONEST))
    *_, null = linux.descendants(device._slots[0].judge.pid)  # between judgements no other box is there
    os.kill(null, signal.SIGKILL)
    for _ in range(2):
        honest_time(judge(HONEST))


@pytest.mark.slow
def test_two_evaluators_on_one_device_wait_for_each_other(device: LocalEvaluator, problem: Problem) -> None:
    """A kernel says when it was called first: the second not before the calls of the first, 30 ms each, were over."""
    stamped = toy.python(f"print(time.monotonic())\ntime.sleep(0.03)\n{ADD}\nreturn data[2]", BOX)
    found: list[list[float]] = []

    def one(evaluator: LocalEvaluator) -> None:
        log = evaluator(problem, stamped, ()).evidence.log
        found.append([float(word) for word in log.split()])

    other = LocalEvaluator(EMULATED)
    try:
        for evaluator in (device, other):
            assert evaluator(problem, HONEST, ()).accepted
        threads = [threading.Thread(target=one, args=(evaluator,)) for evaluator in (device, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        other.close()
    first, second = sorted(found)
    assert second[0] - first[0] > 10 * 0.03


def test_emulated_gpu_takes_only_what_it_can_run(device: LocalEvaluator, problem: Problem) -> None:
    result = device(replace(problem, languages=("cuda",)), gpu_toy.cuda(), ())
    assert result.verdict is Verdict.MALFORMED
    with pytest.raises(DriverError, match="emulated GPU cannot"):
        open_driver("emulated").load(b"code")


@pytest.mark.parametrize("wrong", [{"devices": -1}, {"devices": 0}])
def test_less_than_one_device_or_attempt_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        LocalEvaluator(EMULATED, **wrong)


def test_gpu_that_is_not_here_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(ConfigError) as caught:
        LocalEvaluator(gpu_toy.H200)
    assert "\n" not in str(caught.value)
    assert "h200 (sm_90a) is not in this machine" in str(caught.value)
    assert "evaluator=static" in str(caught.value)


@pytest.mark.slow
@pytest.mark.soak
def test_a_case_that_fills_the_device_meets_one_rival_at_a_time(device: LocalEvaluator, problem: Problem) -> None:
    large = replace(problem, benchmarks=(Case("large", {"n": 3 << 20}, 7),))
    slow = [toy.trial(kernel(us=200_000), f"0000{index}") for index in (1, 2)]

    def far_ahead(result: Evaluation) -> bool:
        assert result.accepted, result.reason
        assert [row.id for row in result.evidence.against] == ["00001", "00002"]
        ahead = all(row.low > 2 for row in result.evidence.against)
        claim = result.evidence.claim
        return ahead and claim.speedup > 2 and claim.control.speedup < 2

    in_the_end(lambda: device(large, kernel(us=20_000), tuple(slow)), far_ahead)
    assert device(large, kernel("data[2][-1] += 1"), ()).verdict is Verdict.INCORRECT
