# expect: accept
# problem: norm
# launch: norm_rows [rows] warps 8 stages 1 (x, w, out, cols, BLOCK=BLOCK)
# dispatch: if cols > 2048: BLOCK=4096
# Device code only.
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def norm_rows(x, w, out, cols, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    inside = j < cols
    values = tl.load(x + row * cols + j, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values) / cols + 1e-6)
    tl.store(out + row * cols + j, values * scale * tl.load(w + j, mask=inside, other=0.0), mask=inside)
