# A plain block-scaled fp8 GEMM: one program for each tile of c, both operands read K-major as they are given.
import triton
import triton.language as tl

BM = 64  # tune: 32 64 128 | tile: rows of c for each program
BN = 128  # tune: 32 64 128 | tile: columns of c for each program; at most 128, which share a scale
WARPS = 4  # tune: 4 8 | block: warps for each program
STAGES = 4  # tune: 2 3 4 5 | memory: slices of 128 of k on their way

# launch: gemm [cdiv(m, BM), cdiv(n, BN)] warps WARPS stages STAGES (a, b, a_scale, b_scale, c, m, n, k, BM=BM, BN=BN)


@triton.jit
def gemm(a, b, a_scale, b_scale, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr):
    """c[i, j] = sum over blocks of 128 k of a_scale[i] * b_scale[j / 128] * (a @ b.T)[i, j]."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, 128)
    a += (rows % m)[:, None] * k + depth[None, :]
    b += (columns % n)[None, :] * k + depth[:, None]
    a_scale += rows % m
    b_scale += tl.program_id(1) * BN // 128
    scale_rows = tl.cdiv(n, 128)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(0, k // 128):
        scale = tl.load(a_scale + block * m) * tl.load(b_scale + block * scale_rows)
        total += tl.dot(tl.load(a), tl.load(b), out_dtype=tl.float32) * scale[:, None]
        a += 128
        b += 128
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), mask=inside)
