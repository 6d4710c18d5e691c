"""Parsers of compilers' output: registers, spills, shared memory, and counts of some instructions.

The text comes out of a sandbox, so the figures only inform people and writers.
"""

import re
from collections import Counter
from collections.abc import Iterable

from ksflow.records import Json

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_FUNCTION = re.compile(r"^\s*Function : (\S+)", re.MULTILINE)
_SASS = re.compile(r"(?<!\.)\b([HIQOD]?G?MMA|UTC\w*MMA|LDSM|LDGSTS|UTMALDG|UTMASTG|STL|LDL)\b")
"""Not `HFMA2.MMA`, which moves a constant."""
_PTX = re.compile(r"\b(wgmma\.mma_async|mma\.sync|tcgen05\.mma|ldmatrix|cp\.async\.bulk|cp\.async)\b")
_AMDGCN = re.compile(r"^\s+(v_mfma_\w+|v_smfmac_\w+|s_swappc_b64|ds_read\w*|ds_write\w*|scratch_\w+)\s", re.MULTILINE)
_AMD_KEYS = {
    "registers": "vgpr_count",
    "agprs": "agpr_count",
    "sgprs": "sgpr_count",
    "spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "scratch_bytes": "private_segment_fixed_size",
    "shared_bytes": "group_segment_fixed_size",
}
_AMD_ARGUMENT = re.compile(r"\.size:\s+(\d+)\s+\.value_kind:\s+(?!hidden_)\w+")
"""Hidden arguments are passed by the runtime."""
_AMD_NAME = re.compile(r"^    \.name:\s+(\S+)$", re.MULTILINE)
_VGPR_BYTES = 4


def ptxas(log: str) -> dict[str, Json]:
    """Return kernel -> figures, from `ptxas -v`, which prints stack and spills before the registers."""
    kernels: dict[str, Json] = {}
    parts = _ENTRY.split(log)
    for name, _, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        row: Json = {"shared_bytes": int(smem[1]) if (smem := _SMEM.search(text)) else 0}
        if used := _USED.search(text):
            row["registers"] = int(used[1])
        if stack := _STACK.search(text):
            row |= {"stack_bytes": int(stack[1]), "spill_bytes": int(stack[2]) + int(stack[3])}
        kernels[name] = row
    return kernels


def sass(text: str) -> dict[str, dict[str, int]]:
    """Return kernel -> counts of some instructions, from `cuobjdump -sass`."""
    parts = _FUNCTION.split(text)
    return {name: _counted(_SASS.findall(body)) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def ptx(text: str) -> dict[str, int]:
    """Return counts of some instructions in PTX, used if no disassembler was found."""
    return _counted(_PTX.findall(text))


def amdgcn(text: str) -> dict[str, Json]:
    """Return kernel -> figures, sizes of parameters, and instructions, from LLVM's assembly."""
    metadata = text.partition("amdhsa.kernels:")[2]
    kernels = {}
    for entry in re.split(r"^  - ", metadata, flags=re.MULTILINE)[1:]:
        name = _AMD_NAME.search(f"    {entry}")
        if name is None:
            continue
        figures = {key: re.search(rf"^\s*\.{word}:\s+(\d+)$", entry, re.MULTILINE) for key, word in _AMD_KEYS.items()}
        row: Json = {key: int(figure[1]) for key, figure in figures.items() if figure}
        row["spill_bytes"] = row.pop("spills", 0) * _VGPR_BYTES
        row["parameters"] = [int(size) for size in _AMD_ARGUMENT.findall(entry)]
        body = rf"^{re.escape(name[1])}:.*?(?=^\s*\.(?:section|end_amdhsa_kernel|size)|\Z)"
        code = re.search(body, text, re.MULTILINE | re.DOTALL)
        row["instructions"] = _counted(_AMDGCN.findall(code[0] if code else ""))
        kernels[name[1]] = row
    return kernels


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
