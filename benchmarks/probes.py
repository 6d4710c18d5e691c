"""The shipped probes beside plain programs that measure the same in the same run, by clocks of their own.

    python benchmarks/probes.py [NAME ...] [--times 3]

On a CPU a C++ program, on an NVIDIA GPU programs of nvcc with CUDA events, and torch's own copy and matrix product as
lines to compare by eye. A figure is off where the two differ by more than a tenth in each of so many `times`; the exit
status is then 1. Beside the standard library it needs torch, PyYAML and the compilers.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from ksflow.evaluation.judge.bench import Bench  # noqa: E402
from ksflow.kernels.hardware.target import default_target  # noqa: E402
from ksflow.notes import figures, probes  # noqa: E402
from ksflow.notes.probes import Probe  # noqa: E402
from ksflow.records import Evaluation, Verdict  # noqa: E402

_OFF = 0.1
_CPU_WORK = {
    "clock.clock": "1000000 / us / 1000",
    "memory-read.rate": "4 * 268435456 / us / 1000",
    "cache-read.small": "4 * 4096 * 4096 / us / 1000",
    "cache-read.middle": "4 * 131072 * 128 / us / 1000",
    "cache-read.large": "4 * 2097152 * 8 / us / 1000",
    "fma.rate": "2 * 24000 * 20 * 16 / us / 1000",
    "bf16-dot.rate": "4 * 24000 * 20 * 16 / us / 1000",
    "amx.rate": "2 * 8000 * 5 * 8192 / us / 1000",
    "latency.small": "us * 1000 / 200000",
    "latency.middle": "us * 1000 / 100000",
    "latency.large": "us * 1000 / 50000",
    "latency.memory": "us * 1000 / 50000",
    "memory-copy.rate": "2 * 67108864 / us / 1000",
}
"""Figure -> what the plain program's time means."""
_CUDA_MAIN = """
#include <algorithm>
#include <cstdio>
#include <vector>
int main() {{
  float *x, *y; int *ring, *walk;
  size_t elements = {elements}ull;
  cudaMalloc(&x, elements * 4); cudaMalloc(&y, elements * 4);
  std::vector<float> host(elements, 1.0f);
  cudaMemcpy(x, host.data(), elements * 4, cudaMemcpyHostToDevice);
  ring = (int *)x; walk = (int *)y + 1024;
  if ({line}) {{
    std::vector<int> lines((size_t){n} * {line} + 1, 0);
    for (long long i = 0; i < {n}; ++i) lines[i * {line}] = (int)((1664525ll * i + 1013904223ll) & ({n} - 1));
    cudaMemcpy(ring, lines.data(), (size_t){n} * {line} * 4, cudaMemcpyHostToDevice);
    cudaMemset(walk, 0, 16);
  }}
  cudaEvent_t start, end; cudaEventCreate(&start); cudaEventCreate(&end);
  for (int i = 0; i < 33; ++i) {{
    cudaEventRecord(start);
    {launch}
    cudaEventRecord(end); cudaEventSynchronize(end);
    float ms; cudaEventElapsedTime(&ms, start, end);
    if (i > 2) printf("%.3f\\n", ms * 1e3);
  }}
  return cudaGetLastError() != cudaSuccess;
}}
"""
_CUDA_LAUNCH = {
    "gpu-memory-read": "read<<<{out}, 512>>>((const float4 *)x, y, {n}, {turns});",
    "l2-read": "read<<<{out}, 512>>>((const float4 *)x, y, {n}, {turns});",
    "gpu-memory-copy": "copy<<<{n} / 8192, 256>>>((const float4 *)x, (float4 *)y, {n});",
    "mma-bf16": "rate<<<{out}, 128>>>(x, y, {turns});",
    "mma-fp8": "rate<<<{out}, 128>>>(x, y, {turns});",
    "wgmma-bf16": "rate<<<{out}, 256>>>(x, y, {turns});",
    "wgmma-fp8": "rate<<<{out}, 256>>>(x, y, {turns});",
    "gpu-latency": (
        "touch<<<256, 256>>>(ring, (int *)y, {n}, {line}); "
        "::walk<<<1, 1>>>(ring, walk, (int *)y, {n}, {turns}, {line});"
    ),
}
"""Probe -> how a plain program launches its kernel."""

Plain = Callable[[Probe], dict[str, list[float]]]


def best(values: list[float], rate: bool) -> float:
    """The better tenth on a CPU, where others only slow down; a GPU's is hardly another than the median."""
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return tenths[-1] if rate else tenths[0]


def cpu_program(folder: Path) -> Plain:
    """Figure -> its values, by the plain C++ program."""
    program = folder / "plain"
    source = Path(__file__).with_name("probes_plain.cpp")
    subprocess.run(["g++", "-std=c++20", "-O3", "-march=native", source, "-o", program, "-pthread"], check=True)

    def plain(probe: Probe) -> dict[str, list[float]]:
        found = {}
        text = subprocess.run([program, f"{probe.name}."], check=True, capture_output=True, text=True).stdout
        for name, *times in (line.split() for line in text.splitlines()):
            found[name.partition(".")[2]] = [_value(_CPU_WORK[name], float(time) / 1e3) for time in times]
        return found

    return plain


def gpu_program(folder: Path, march: str) -> Plain:
    """The same by a program of nvcc for each case, which launches the probe's kernel by itself."""

    def plain(probe: Probe) -> dict[str, list[float]]:
        found = {}
        for name, figure in probe.figures.items() if probe.name in _CUDA_LAUNCH else ():
            case = probe.cases[figure.case or next(iter(probe.cases))]
            params = {"out": 1, "line": 0, **case}
            elements = max(int(params["n"]) * max(int(params["line"]), 1), 1 << 20)
            main = _CUDA_MAIN.format(**params, elements=elements, launch=_CUDA_LAUNCH[probe.name].format(**params))
            source, program = folder / f"{probe.name}.cu", folder / probe.name
            source.write_text(probe.kernel.main + main)
            subprocess.run(
                [
                    "nvcc",
                    "-std=c++17",
                    "-O3",
                    f"-gencode=arch={march.replace('sm_', 'compute_')},code={march}",
                    source,
                    "-o",
                    program,
                ],
                check=True,
            )
            text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
            numbers = {key: value for key, value in params.items() if isinstance(value, int | float)}
            found[name] = [_value(figure.value, float(line), numbers) for line in text.split()]
        return found

    return plain


def _value(expression: str, us: float, names: dict[str, float] | None = None) -> float:
    from ksflow.kernels.source.expressions import calculate

    return float(calculate(expression, {**(names or {}), "us": us}))


def judged(bench: Bench, probe: Probe) -> tuple[Evaluation, dict[str, float]]:
    """The judge's word, and each figure."""
    evaluation = bench(probe.problem, probe.kernel)
    if not (evaluation.accepted or evaluation.verdict is Verdict.UNTIMED):
        return evaluation, {}
    found = figures.readings(probe, evaluation, bench.target)
    return evaluation, {name: one.middle for name, one in found.items()}


def compare(bench: Bench, probe: Probe, plain: Plain, times: int) -> bool:
    """One probe: a line for each figure; whether each was within a tenth once."""
    near: dict[str, float] = {}
    for _ in range(times):
        evaluation, ours = judged(bench, probe)
        if not ours and probe.figures:
            print(f"{probe.name:16} OFF {evaluation.verdict}: {evaluation.reason}", flush=True)
            return False
        theirs = plain(probe)
        for name, value in ours.items():
            unit = probe.figures[name].unit
            if name not in theirs:
                near.setdefault(name, 1.0)
                print(f"{probe.name:16} {name:10} {value:10.4g} {unit:8} (no plain program)", flush=True)
                continue
            other = best(theirs[name], "/s" in unit or unit == "GHz")
            near[name] = min(near.get(name, 9.9), value / other, key=lambda ratio: abs(ratio - 1))
            line = f"{value:10.4g} {unit:8} plain {other:10.4g}  ratio {value / other:.3f}"
            print(f"{probe.name:16} {name:10} {line}", flush=True)
        if all(abs(ratio - 1) <= _OFF for ratio in near.values()):
            break
    if evaluation.verdict is Verdict.UNTIMED or not probe.figures:
        print(f"{probe.name:16} {figures.note(probe, evaluation, bench.target).text[:400]}", flush=True)
    off = {name: round(ratio, 3) for name, ratio in near.items() if abs(ratio - 1) > _OFF}
    if off:
        print(f"{probe.name:16} OFF: {off}", flush=True)
    return not off


def torch_lines() -> None:
    """Torch's own copy and matrix products, by CUDA events: to compare by eye."""
    import torch

    def clock(work: Callable[[], object]) -> float:
        times = []
        for _ in range(23):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3)
        return statistics.median(times[3:])

    x = torch.ones(1 << 27, device="cuda")
    y = torch.empty_like(x)
    print(f"torch copy_ of 512 MiB: {8 * x.numel() / clock(lambda: y.copy_(x)) / 1e6:.3g} TB/s")
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    print(f"torch matmul bf16 {n}: {2 * n**3 / clock(lambda: a @ b) / 1e6:.4g} TFLOP/s")
    left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")

    def scaled() -> object:
        return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    print(f"torch _scaled_mm e4m3 {n}: {2 * n**3 / clock(scaled) / 1e6:.4g} TFLOP/s", flush=True)


def main() -> None:
    """All probes of this machine's target, or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    target = default_target()
    bench = Bench(target)
    print(f"{target.chip}, {target.march}")
    fine = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = cpu_program(folder) if target.kind == "cpu" else gpu_program(folder, target.march)
        for probe in probes.shipped_probes():
            if probe.lacks(target) or (given.names and probe.name not in given.names):
                continue
            fine &= compare(bench, probe, plain, given.times)
    if target.kind == "gpu":
        torch_lines()
    bench.close()
    sys.exit(not fine)


if __name__ == "__main__":
    main()
