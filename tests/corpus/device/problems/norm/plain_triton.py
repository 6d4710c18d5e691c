import triton
import triton.language as tl


@triton.jit
def norm_rows(x, w, out, cols, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    inside = j < cols
    values = tl.load(x + row * cols + j, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values) / cols + 1e-6)
    tl.store(out + row * cols + j, values * scale * tl.load(w + j, mask=inside, other=0.0), mask=inside)


def custom_kernel(data):
    x, w, out = data
    norm_rows[(x.shape[0],)](x, w, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return out
