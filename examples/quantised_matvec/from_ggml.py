"""Make a kernel of your own checkout of ggml: `python from_ggml.py ~/ggml > q4_matvec/seeds/cpu/ggml.cpp`.

The kernel calls ggml's `ggml_vec_dot_q4_0_q8_0` for x86 for each row, as ggml's product does for weights that are not
repacked. The output contains ggml's code, under ggml's licence (MIT).
"""

import re
import sys
from pathlib import Path

_BEFORE = """\
// `ggml_vec_dot_q4_0_q8_0` of a checkout of ggml, under ggml's licence (MIT).
#include <assert.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define QK8_0 32
#define GGML_RESTRICT __restrict
#define GGML_CPU_FP16_TO_FP32(x) _cvtsh_ss(x)
#define UNUSED(x) (void)(x)
struct block_q4_0 { uint16_t d; uint8_t qs[16]; };
struct block_q8_0 { uint16_t d; int8_t qs[32]; };
"""
_AFTER = """
// flags: -fopenmp if NUM_THREADS > 1
extern "C" void custom_kernel(const uint8_t *w, const uint8_t *x, float *y, long rows, long cols, const long *strides) {
#if NUM_THREADS > 1
#pragma omp parallel for num_threads(NUM_THREADS) schedule(static)
#endif
  for (long i = 0; i < rows; i++) ggml_vec_dot_q4_0_q8_0(cols, y + i, 0, w + i * strides[0], 0, x, 0, 1);
}
"""


def main(checkout: str) -> None:
    """Write the kernel. Fails if the function is not found in the checkout."""
    text = (Path(checkout) / "src/ggml-cpu/arch/x86/quants.c").read_text(encoding="utf-8")
    helpers = re.search(r"^(?:#define MM256_SET_M128I.*?)(?=^void )", text, re.MULTILINE | re.DOTALL)
    function = re.search(r"^void ggml_vec_dot_q4_0_q8_0\(.*?^}$", text, re.MULTILINE | re.DOTALL)
    if not (helpers and function):
        sys.exit(f"{checkout}: no ggml_vec_dot_q4_0_q8_0 for x86 in this version of ggml")
    body = re.sub(r"const (block_\w+) \* GGML_RESTRICT (\w) = v(\w);", r"auto \2 = (const \1 *)v\3;", function[0])
    sys.stdout.write(f"{_BEFORE}{helpers[0]}static {body}{_AFTER}")


if __name__ == "__main__":
    main(sys.argv[1])
