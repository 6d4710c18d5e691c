# expect: reject
# problem: deep8192
# Triton's product as it comes: operands in TF32, sums of 8192 terms.
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, m, n, k):
    i, j, p = tl.program_id(0) * 32 + tl.arange(0, 32), tl.program_id(1) * 32 + tl.arange(0, 32), tl.arange(0, 32)
    total = tl.zeros((32, 32), tl.float32)
    for start in range(0, k, 32):
        left = tl.load(a + i[:, None] * k + start + p[None, :], (i[:, None] < m) & (start + p[None, :] < k), 0.0)
        right = tl.load(b + (start + p[:, None]) * n + j[None, :], (start + p[:, None] < k) & (j[None, :] < n), 0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total, (i[:, None] < m) & (j[None, :] < n))


def custom_kernel(data):
    a, b, c = data
    m, n = c.shape
    product[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, a.shape[1])
    return c
