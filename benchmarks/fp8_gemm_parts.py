"""fp8_gemm's leaderboard shapes: what a user could put together from parts, and ksflow's kernels, by one clock.

    python benchmarks/fp8_gemm_parts.py --deep-gemm FOLDER FOLDER --out parts.json

With column-major operands, as the task gives them: the PyTorch reference; both operands made K-major by torch, and in
one simple Triton launch (the fastest of its tiles for each shape; it turns b's scales too); that launch and a library's
product after it; ksflow's module. With K-major operands, and b's scales made contiguous before: the libraries' products
alone, and ksflow's module for that layout. The libraries are DeepGEMM (each folder holds a package `deep_gemm`; without
the option the one that is installed, if any) and cuBLASLt as torch calls it. Two rows compute something else, without
the scales of blocks: tensor-wise fp8 with fast accumulation, and bf16.

Clock: CUDA events in one process. Before each call a kernel spins, so that all launches are queued before the first
event and no host time counts (a call that was late is dropped), and 512 MB are written, which flushes the L2. Variants
take turns, in another order every round; the median counts. All that needs compiling is compiled before.

Before and after the timing a result is compared with float32's: the largest deviation, less 1/128 of the element for
the rounding to bf16, by the root mean square of all. Above 0.05 it is wrong and no part of the geometric mean, which is
over the shapes that a variant takes; beside it stands ksflow's over the same ones. What fails costs its own cells, but
after a fault of the GPU nothing goes on: then `--without` leaves out variants that have a word in their names.

Not measured: host time, first calls, accuracy as the judge takes it, times with instructions and translations cold
(the judge's are: benchmarks/device.py). Needs a Hopper GPU, nvcc, torch, Triton. DeepGEMM is not built or fetched here.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import math
import multiprocessing
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

Call = Callable[[], Any]
Product = Callable[[tuple[Any, Any], tuple[Any, Any], Any], Any]
"""(a, its scales), (b, its scales), c -> c, or what is in its place."""
Json = dict[str, Any]

_PROBLEM = _ROOT / "problems/fp8_gemm"
_FLUSH_BYTES, _AHEAD = 512 << 20, 1_500_000
"""What is written before each call; for how many cycles the GPU spins while the CPU launches."""
_WARM, _CHOOSING, _WRONG, _CORES = 2, 5, 0.05, 16
"""Rounds that do not count, rounds by which a tile is chosen."""
_TILES = ((64, 64, 4), (128, 64, 4), (64, 128, 4), (128, 128, 4), (128, 128, 8), (256, 64, 8), (64, 256, 8))
"""Rows, depth and warps of the launch that turns."""
_COLUMNS, _KMAJOR, _EARLY = "ksflow, column-major", "ksflow, K-major", ", begun early"
_UNSCALED = ("cuBLASLt tensor-wise fp8", "cuBLAS bf16")


@triton.jit  # type: ignore[untyped-decorator]
def _turn(a, b, scale, at, bt, st, m, n, k, ROWS: tl.constexpr, DEPTH: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: PLR0913
    """a [k, m], b [k, n] and b's scales, as they lie in memory, into at [m, k], bt [n, k] and st: a tile a program."""
    pid = tl.program_id(0)
    of_a = tl.cdiv(m, ROWS) * tl.cdiv(k, DEPTH)
    of_b = tl.cdiv(n, ROWS) * tl.cdiv(k, DEPTH)
    if pid < of_a:
        _turn_tile(a, at, m, k, pid, (ROWS, DEPTH))
    elif pid < of_a + of_b:
        _turn_tile(b, bt, n, k, pid - of_a, (ROWS, DEPTH))
    else:
        _turn_tile(scale, st, tl.cdiv(n, 128), k // 128, 0, (64, 64))


@triton.jit  # type: ignore[untyped-decorator]
def _turn_tile(source, target, rows, k, pid, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    r = pid // tl.cdiv(k, TILE[1]) * TILE[0] + tl.arange(0, TILE[0])
    d = pid % tl.cdiv(k, TILE[1]) * TILE[1] + tl.arange(0, TILE[1])
    tile = tl.load(source + d[:, None] * rows + r[None, :], mask=(d < k)[:, None] & (r < rows)[None, :], other=0)
    tl.store(target + r[:, None] * k + d[None, :], tl.trans(tile), mask=(r < rows)[:, None] & (d < k)[None, :])


@functools.cache
def _deep_gemm(folder: str) -> dict[str, Product]:
    """DeepGEMM, and once more with its launch begun early, where it can be. Old versions call it otherwise."""
    sys.path.insert(0, folder or str(_ROOT))
    try:
        module = importlib.import_module("deep_gemm")
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if name.split(".")[0] == "deep_gemm"]:
            del sys.modules[name]  # so that another folder's can be loaded beside it
    product = module.fp8_gemm_nt if hasattr(module, "fp8_gemm_nt") else module.gemm_fp8_fp8_bf16_nt
    name = f"DeepGEMM {getattr(module, '__version__', '1')}"

    def call(left: tuple[Any, Any], right: tuple[Any, Any], c: Any, early: bool = False) -> Any:
        if early:
            module.set_pdl(True)
        product(left, right, c)
        if early:
            module.set_pdl(False)
        return c

    return {name: call} | ({name + _EARLY: functools.partial(call, early=True)} if hasattr(module, "set_pdl") else {})


def _cublaslt(left: tuple[Any, Any], right: tuple[Any, Any], c: Any) -> Any:
    (a, a_scale), (b, b_scale) = left, right
    return torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale.t(), out_dtype=c.dtype)


class Shape:
    """One shape: its operands in both layouts, the variants, and what is right."""

    def __init__(self, params: dict[str, int], products: dict[str, Product], modules: dict[str, Any]) -> None:
        reference = _reference()
        self.data = a, b, a_scale, b_scale, c = reference.generate_input(**params, device="cuda")
        self.kmajor = at, bt, *_ = a.contiguous(), b.contiguous(), a_scale, b_scale, c
        self.turned = torch.empty_like(at), torch.empty_like(bt), torch.empty(b_scale.shape, device="cuda")
        self.tile = _TILES[0]
        """Of the launch that turns."""
        one, st, left, right = torch.ones((), device="cuda"), b_scale.contiguous(), at.bfloat16(), bt.bfloat16().t()
        plain = {"scale_a": one, "scale_b": one, "out_dtype": c.dtype, "use_fast_accum": True}
        self.calls: dict[str, Call] = {
            "PyTorch, the reference": lambda: reference.ref_kernel(self.data),
            "turned by torch": lambda: (a.contiguous(), b.contiguous()),
            "turned by Triton": self.turn,
            **{f"turned by Triton, {name}": functools.partial(self._after, use) for name, use in products.items()},
            _COLUMNS: lambda: modules[_COLUMNS].custom_kernel(self.data),
        }
        for name, use in products.items():
            if not name.endswith(_EARLY):  # there is nothing before it
                self.calls[name] = functools.partial(use, (at, a_scale), (bt, st), c)
        self.calls[_UNSCALED[0]] = lambda: torch._scaled_mm(at, bt.t(), **plain)
        self.calls[_UNSCALED[1]] = lambda: torch.mm(left, right, out=c)
        self.calls[_KMAJOR] = lambda: modules[_KMAJOR].custom_kernel(self.kmajor)
        self._want = reference.ref_kernel((*self.data[:-1], torch.empty_like(c))).float(), at.float() @ bt.float().T

    def turn(self, tile: tuple[int, int, int] | None = None) -> tuple[Any, Any]:
        """Both operands and b's scales, by one launch."""
        (a, b, _, scale, _), (at, bt, st), (rows, depth, warps) = self.data, self.turned, tile or self.tile
        (m, k), n = at.shape, len(bt)
        tiles = (triton.cdiv(m, rows) + triton.cdiv(n, rows)) * triton.cdiv(k, depth) + 1
        a, b, into_a, into_b = (one.view(torch.uint8) for one in (a, b, at, bt))
        _turn[(tiles,)](a, b, scale, into_a, into_b, st, m, n, k, ROWS=rows, DEPTH=depth, num_warps=warps)
        return at, bt

    def _after(self, product: Product) -> Any:
        at, bt = self.turn()
        return product((at, self.data[2]), (bt, self.turned[2]), self.data[4])

    def error(self, name: str) -> float:
        """Call a variant once, with nothing left of an earlier answer: the largest deviation."""
        for one in (*self.turned, self.data[4]):
            one.view(torch.uint8).fill_(0xFF)  # not a number, in all three types
        got = self.calls[name]()
        if isinstance(got, tuple):
            return 0.0 if all(torch.equal(got[i].float(), self.kmajor[i].float()) for i in range(2)) else math.inf
        want = self._want[name in _UNSCALED]
        return float(((got.float() - want).abs() - want.abs() / 128).max().clamp(min=0) / want.square().mean().sqrt())


def _clock(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """µs of each call, in turns."""
    scratch = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(_WARM + rounds):
        for name in random.Random(number).sample(list(calls), len(calls)):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda._sleep(_AHEAD)  # type: ignore[no-untyped-call]
            scratch.zero_()
            first.record()
            calls[name]()
            last.record()
            late = first.query()  # type: ignore[no-untyped-call]
            last.synchronize()
            if number >= _WARM and not late:
                found[name].append(first.elapsed_time(last) * 1e3)
    return found


def _measured(shape: Shape, rounds: int) -> Json:
    """All variants of a shape: its cells."""
    cells: Json = {}

    def tried(name: str) -> bool:
        try:
            error = shape.error(name)
            worst = max(cells.get(name, {}).get("error", 0.0), error if math.isfinite(error) else 1e9)
            cells[name] = {"error": worst, "wrong": worst > _WRONG}
        except Exception as error:  # noqa: BLE001 - the other variants go on
            cells[name] = {"failed": _line(error)}
        torch.cuda.synchronize()
        return "failed" not in cells[name]

    tiles = _clock({str(tile): functools.partial(shape.turn, tile) for tile in _TILES}, _CHOOSING)
    shape.tile = min(_TILES, key=lambda tile: statistics.median(tiles[str(tile)] or [math.inf]))
    for name, samples in _clock({name: call for name, call in shape.calls.items() if tried(name)}, rounds).items():
        if tried(name):
            timed = {"us": statistics.median(samples), "all": samples, "tile": shape.tile} if samples else {}
            cells[name] |= timed or {"failed": "always late"}
    return cells


def _table(cases: dict[str, Json]) -> str:
    """The geometric means of what is right."""
    titles = ("variant", "geometric mean, us", "shapes", "ksflow, the same", "largest deviation")
    lines, ours = ["", f"| {' | '.join(titles)} |", "|---|---:|---:|---:|---:|"], _COLUMNS
    for name in dict.fromkeys(name for row in cases.values() for name in row):
        cells = {case: row[name] for case, row in cases.items() if name in row}
        times = {case: cell["us"] for case, cell in cells.items() if "us" in cell and not cell["wrong"]}
        beside = [cases[case].get(ours, {}).get("us") for case in times]
        means = [statistics.geometric_mean(one) if one and all(one) else math.nan for one in (times.values(), beside)]
        worst = max(cell.get("error", 0.0) for cell in cells.values())
        lines.append(f"| {name} | {means[0]:.2f} | {len(times)} | {means[1]:.2f} | {worst:.4f} |")
        ours = _KMAJOR if name == _COLUMNS else ours  # what stands below has that layout
    return "\n".join(lines)


def _compile(folder: str, params: dict[str, int]) -> None:
    """In a process of its own: have DeepGEMM compile what it takes for a shape."""
    a, b, a_scale, b_scale, c = _reference().generate_input(**params, device="cuda")
    product = next(iter(_deep_gemm(folder).values()))
    product((a.contiguous(), a_scale), (b.contiguous(), b_scale.contiguous()), c)


def _prepared(folders: list[str], modules: dict[str, Any]) -> dict[str, Product]:
    """The libraries' products. What they and ksflow's modules compile is compiled, by all cores."""
    products: dict[str, Product] = {}
    waiting: dict[Future[Any], str] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_CORES, mp_context=spawn) as processes, ThreadPoolExecutor(_CORES) as threads:
        for folder in folders:
            try:
                products |= _deep_gemm(folder)
                waiting |= {processes.submit(_compile, folder, params): f"DeepGEMM {folder}" for params in _cases()}
            except Exception as error:  # noqa: BLE001 - it is not there
                print(f"DeepGEMM {folder} is left out: {_line(error)}", flush=True)
        for name, module in modules.items():  # one that has no variants compiles when it is called
            waiting |= {threads.submit(module._code, one): name for one in range(len(getattr(module, "_VARIANTS", ())))}
        for future, name in waiting.items():
            if said := future.exception():
                print(f"{name}: {_line(said)}", flush=True)
    return products | {"cuBLASLt block-scaled": _cublaslt}


@functools.cache
def _reference() -> Any:
    return _module("fp8_gemm_reference", _PROBLEM / "reference.py")


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _cases() -> list[dict[str, int]]:
    """The leaderboard's, in problem.yaml's order."""
    text = (_PROBLEM / "problem.yaml").read_text(encoding="utf-8").split("leaderboard:")[1].split("cpu:")[0]
    found = re.findall(r"m: (\d+), n: (\d+), k: (\d+), seed: (\d+)", text)
    return [dict(zip(("m", "n", "k", "seed"), map(int, one), strict=True)) for one in found]


def main() -> None:
    """All shapes, one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deep-gemm", nargs="*", default=[""], help="folders that hold a package deep_gemm")
    for layout in ("columns", "kmajor"):
        module = _ROOT / f"results/fp8_gemm_h200_{layout}/winner/module.py"
        parser.add_argument(f"--{layout}", type=Path, default=module, help="ksflow's module for that layout")
    parser.add_argument("--without", nargs="*", default=[], help="words of variants that are left out")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("fp8_gemm_parts.json"), help="a file for all figures")
    given = parser.parse_args()
    started = time.monotonic()
    modules = {_COLUMNS: _module("ksflow_columns", given.columns), _KMAJOR: _module("ksflow_kmajor", given.kmajor)}
    products = _prepared(given.deep_gemm, modules)
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    print(f"{device}: compiled after {time.monotonic() - started:.0f} s", flush=True)
    cases: dict[str, Json] = {}
    try:
        for params in _cases():
            shape = Shape(params, products, modules)
            shape.calls = {n: call for n, call in shape.calls.items() if not any(word in n for word in given.without)}
            name = f"{params['m']}x{params['n']}x{params['k']}"
            cases[name] = _measured(shape, given.rounds)
            cells = cases[name].items()
            said = (f"{n} {c.get('failed') or round(c['us'], 1)}{' wrong' * c.get('wrong', False)}" for n, c in cells)
            print(f"{time.monotonic() - started:.0f} s, {name}: {'; '.join(said)}", flush=True)
            given.out.write_text(json.dumps({"device": device, "cases": cases}))
    finally:
        print(_table(cases), flush=True)


if __name__ == "__main__":
    main()
