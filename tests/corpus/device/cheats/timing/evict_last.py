# expect: true-speed
# problem: norm
# gain: 1.05
# Marks the lines that it reads as the last to leave the cache, so that flushing it does not help. The mark is of use
# within one call, too: in a script that renews the inputs and writes 256 MB before each call, the shortest case takes
# 7.7 us instead of 9.4, the middle one 42.1 instead of 40.7 (an H200).
import triton
import triton.language as tl

BLOCK = 8192
# launch: norm_kept [rows] warps 8 stages 1 (x, w, out, cols, BLOCK=BLOCK)


@triton.jit
def norm_kept(x, w, out, cols, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    inside = j < cols
    values = tl.load(x + row * cols + j, mask=inside, other=0.0, eviction_policy="evict_last")
    scale = tl.rsqrt(tl.sum(values * values) / cols + 1e-6)
    tl.store(out + row * cols + j, values * scale * tl.load(w + j, mask=inside, other=0.0), mask=inside)
