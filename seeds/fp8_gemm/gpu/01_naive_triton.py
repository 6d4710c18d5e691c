# A plain block-scaled fp8 GEMM: one program for each tile of c, the operands read as they are given.
# Both have k as their slow axis, so the compiler reorders bytes before every matrix instruction.
import triton
import triton.language as tl

BM = 64
BN = 64
WARPS = 4
STAGES = 2

# launch: gemm [cdiv(m, BM), cdiv(n, BN)] warps WARPS stages STAGES (a, b, a_scale, b_scale, c, m, n, k, BM=BM, BN=BN)


@triton.jit
def gemm(a, b, a_scale, b_scale, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr):
    """c[i, j] = sum over blocks of 128 k of a_scale[i] * b_scale[j / 128] * (a @ b.T)[i, j]."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, 128)
    row_inside = rows < m
    column_inside = columns < n
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(0, k // 128):
        at_k = block * 128 + depth
        left = tl.load(a + at_k[None, :] * m + rows[:, None], mask=row_inside[:, None], other=0.0)
        right = tl.load(b + at_k[:, None] * n + columns[None, :], mask=column_inside[None, :], other=0.0)
        by_row = tl.load(a_scale + block * m + rows, mask=row_inside, other=0.0)
        by_column = tl.load(b_scale + block * tl.cdiv(n, 128) + columns // 128, mask=column_inside, other=0.0)
        total += tl.dot(left, right, out_dtype=tl.float32) * by_row[:, None] * by_column[None, :]
    inside = row_inside[:, None] & column_inside[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), mask=inside)
