# expect: accept
# problem: momentum
# Returns nothing: what changed is the caller's.
import triton
import triton.language as tl


@triton.jit
def momentum(g, m, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(m + at, 0.9 * tl.load(m + at, mask=inside) + tl.load(g + at, mask=inside), mask=inside)


def custom_kernel(data):
    g, m = data
    momentum[(triton.cdiv(m.numel(), 1024),)](g, m, m.numel(), BLOCK=1024)
