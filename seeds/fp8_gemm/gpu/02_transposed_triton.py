# One block-scaled fp8 GEMM, many forms: every choice between the naive kernel and a transposing, split or persistent
# one is a tunable, so that a search can walk the whole way. The declared values are the naive ones.
#
# Hopper's fp8 matrix instruction (wgmma) wants both operands with k contiguous, but they come with k slow. With
# TRANSPOSE = 0 the compiler reorders bytes inside the inner loop; with 1 or 2 one launch turns both operands into
# workspaces first, which costs their traffic once. The sums of 128 k are scaled in float32 beside the matrix unit, so
# a tile has two sets of accumulators: 2 * BM * BN / (32 * WARPS) registers per thread.
import triton
import triton.language as tl

TRANSPOSE = 0  # tune: 0 1 2 | form: operands as given, or k made contiguous first: byte by byte, or 4x4 bytes in registers
TR = 64  # tune: 64 128 256 | block: rows of a transposed tile | if TRANSPOSE != 0
TK = 64  # tune: 64 128 256 | block: depth of a transposed tile | if TRANSPOSE != 0
TWARPS = 4  # tune: 2 4 8 | block: warps that transpose a tile | if TRANSPOSE != 0
BM = 64  # tune: 64 128 256 | tile: rows of c
BN = 128  # tune: 32 64 128 256 | tile: columns of c
WARPS = 4  # tune: 4 8 | tile: warps of a tile
STAGES = 3  # tune: 2 3 4 5 | prefetch: k blocks in flight
SCALES = 0  # tune: 0 1 | prefetch: scales loaded where they are used, or one k block ahead
GROUP = 1  # tune: 1 4 16 | memory: rows of tiles that are done together, for the cache
SPLIT = 1  # tune: 1 2 4 8 | form: shares of k that are summed by a second launch; for few tiles and much k
PERSISTENT = 0  # tune: 0 1 2 | form: one program for each tile, or so many for each of 132 processors
# require: STAGES * (BM + BN) * 128 <= 232448
# require: 2 * BM * BN <= WARPS * 32 * 256
# require: TR * TK <= 32 * TWARPS * 256 or TRANSPOSE == 0

# workspace: at uint8 m * k if TRANSPOSE else 16
# workspace: bt uint8 n * k if TRANSPOSE else 16
# workspace: partial float32 SPLIT * m * n if SPLIT > 1 else 16
# launch: transpose [(cdiv(m, TR) + cdiv(n, TR)) * cdiv(k, TK)] warps TWARPS stages 1 (a, b, at, bt, m, n, k, WORDS=TRANSPOSE - 1, TR=TR, TK=TK) if TRANSPOSE
# launch: gemm [min(cdiv(m, BM) * cdiv(n, BN) * SPLIT, 132 * PERSISTENT) if PERSISTENT else cdiv(m, BM) * cdiv(n, BN) * SPLIT] warps WARPS stages STAGES (a, b, at, bt, a_scale, b_scale, c, partial, m, n, k, TRANSPOSE=TRANSPOSE, BM=BM, BN=BN, SCALES=SCALES, GROUP=GROUP, SPLIT=SPLIT, PERSISTENT=PERSISTENT)
# launch: add_shares [cdiv(m * n, 1024)] warps 4 stages 1 (partial, c, m * n, SPLIT=SPLIT) if SPLIT > 1


@triton.jit
def transpose(a, b, at, bt, m, n, k, WORDS: tl.constexpr, TR: tl.constexpr, TK: tl.constexpr):
    """a [k, m] and b [k, n], as they lie in memory, into at [m, k] and bt [n, k]."""
    pid = tl.program_id(0)
    of_a = tl.cdiv(m, TR) * tl.cdiv(k, TK)
    if pid < of_a:
        turn(a, at, m, k, pid, WORDS, TR, TK)
    else:
        turn(b, bt, n, k, pid - of_a, WORDS, TR, TK)


@triton.jit
def turn(source, target, rows, k, pid, WORDS: tl.constexpr, TR: tl.constexpr, TK: tl.constexpr):
    """One tile. Rows are a multiple of 32 and k of 128, which lets the compiler use accesses of 16 bytes."""
    rows = rows // 32 * 32
    k = k // 128 * 128
    first_row = pid // tl.cdiv(k, TK) * TR
    first_k = pid % tl.cdiv(k, TK) * TK
    if WORDS:
        turn_words(source, target, rows // 4, k // 4, first_row // 4, first_k // 4, TR // 4, TK // 4)
    else:
        source = source.to(tl.pointer_type(tl.uint8), bitcast=True)
        r = first_row + tl.arange(0, TR)
        d = first_k + tl.arange(0, TK)
        inside = (r < rows)[None, :] & (d < k)[:, None]
        tile = tl.load(source + d[:, None] * rows + r[None, :], mask=inside, other=0)
        tl.store(target + r[:, None] * k + d[None, :], tl.trans(tile), mask=tl.trans(inside))


@triton.jit
def turn_words(source, target, rows, k, first_row, first_k, TR: tl.constexpr, TK: tl.constexpr):
    """The same in words of 4 bytes: 4 words hold 4x4 bytes, which are transposed in registers."""
    source = source.to(tl.pointer_type(tl.uint32), bitcast=True)
    target = target.to(tl.pointer_type(tl.uint32), bitcast=True)
    rows = rows // 8 * 8
    k = k // 32 * 32
    r = first_row + tl.arange(0, TR)
    d = first_k + tl.arange(0, TK)
    inside = (r < rows)[None, :] & (d < k)[:, None]
    read = source + d[:, None] * (4 * rows) + r[None, :]
    w0 = tl.load(read, mask=inside, other=0)
    w1 = tl.load(read + rows, mask=inside, other=0)
    w2 = tl.load(read + 2 * rows, mask=inside, other=0)
    w3 = tl.load(read + 3 * rows, mask=inside, other=0)
    # pairs of bytes, then pairs of pairs
    low01 = (w0 & 0x00FF00FF) | ((w1 & 0x00FF00FF) << 8)
    high01 = ((w0 >> 8) & 0x00FF00FF) | (w1 & 0xFF00FF00)
    low23 = (w2 & 0x00FF00FF) | ((w3 & 0x00FF00FF) << 8)
    high23 = ((w2 >> 8) & 0x00FF00FF) | (w3 & 0xFF00FF00)
    write = target + r[:, None] * (4 * k) + d[None, :]
    inside = tl.trans(inside)
    tl.store(write, tl.trans((low01 & 0xFFFF) | (low23 << 16)), mask=inside)
    tl.store(write + k, tl.trans((high01 & 0xFFFF) | (high23 << 16)), mask=inside)
    tl.store(write + 2 * k, tl.trans((low01 >> 16) | (low23 & 0xFFFF0000)), mask=inside)
    tl.store(write + 3 * k, tl.trans((high01 >> 16) | (high23 & 0xFFFF0000)), mask=inside)


@triton.jit
def gemm(
    a, b, at, bt, a_scale, b_scale, c, partial, m, n, k,
    TRANSPOSE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    SCALES: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr, PERSISTENT: tl.constexpr,
):  # fmt: skip
    """c = a @ b.T, scaled; with SPLIT > 1 the shares' sums go to `partial` instead."""
    m = m // 32 * 32
    n = n // 64 * 64
    k = k // 128 * 128
    if TRANSPOSE:
        a = at.to(tl.pointer_type(a.dtype.element_ty), bitcast=True)
        b = bt.to(tl.pointer_type(b.dtype.element_ty), bitcast=True)
    if PERSISTENT:
        tiles = tl.cdiv(m, BM) * tl.cdiv(n, BN) * SPLIT
        for pid in range(tl.program_id(0), tiles, tl.num_programs(0)):
            tile(a, b, a_scale, b_scale, c, partial, m, n, k, pid, TRANSPOSE, BM, BN, SCALES, GROUP, SPLIT)
    else:
        pid = tl.program_id(0)
        tile(a, b, a_scale, b_scale, c, partial, m, n, k, pid, TRANSPOSE, BM, BN, SCALES, GROUP, SPLIT)


@triton.jit
def tile(
    a, b, a_scale, b_scale, c, partial, m, n, k, pid,
    TRANSPOSE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    SCALES: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """One tile of c, or one share of it."""
    share = pid % SPLIT
    in_group = GROUP * tl.cdiv(n, BN)
    group = pid // SPLIT // in_group
    height = tl.minimum(tl.cdiv(m, BM) - group * GROUP, GROUP)
    within = pid // SPLIT % in_group
    rows = (group * GROUP + within % height) * BM + tl.arange(0, BM)
    first_column = within // height * BN
    columns = first_column + tl.arange(0, BN)
    ra = rows % m  # beyond the last row and column others are computed again, and not stored
    rb = columns % n
    depth = tl.arange(0, 128)
    if TRANSPOSE:
        a += ra[:, None] * k + depth[None, :]
        b += rb[None, :] * k + depth[:, None]
        a_step, b_step = 128, 128
    else:
        a += ra[:, None] + depth[None, :] * m
        b += rb[None, :] + depth[:, None] * n
        a_step, b_step = 128 * m, 128 * n
    a_scale += ra
    scale_rows = tl.cdiv(n, 128)
    if BN > 128:
        b_scale += rb // 128
    else:
        b_scale += first_column // 128
    blocks = k // 128
    per_share = tl.cdiv(blocks, SPLIT)
    begin = share * per_share
    end = tl.minimum(begin + per_share, blocks)
    a += begin * a_step
    b += begin * b_step
    ahead = tl.minimum(begin, blocks - 1)
    a_ahead = tl.load(a_scale + ahead * m)
    b_ahead = tl.load(b_scale + ahead * scale_rows)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(begin, end):
        if SCALES:
            by_row, by_column = a_ahead, b_ahead
            ahead = tl.minimum(block + 1, blocks - 1)
            a_ahead = tl.load(a_scale + ahead * m)
            b_ahead = tl.load(b_scale + ahead * scale_rows)
        else:
            by_row = tl.load(a_scale + block * m)
            by_column = tl.load(b_scale + block * scale_rows)
        product = tl.dot(tl.load(a), tl.load(b), out_dtype=tl.float32)
        if BN > 128:
            total += product * by_row[:, None] * by_column[None, :]
        else:
            total += product * (by_row * by_column)[:, None]
        a += a_step
        b += b_step
    at = rows[:, None] * n + columns[None, :]
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    if SPLIT > 1:
        tl.store(partial + share * (m * n) + at, total, mask=inside)
    else:
        tl.store(c + at, total.to(tl.bfloat16), mask=inside)


@triton.jit
def add_shares(partial, c, size, SPLIT: tl.constexpr):
    """c = the sum of the shares."""
    size = size // 2048 * 2048
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    found = tl.zeros((1024,), dtype=tl.float32)
    for share in tl.static_range(SPLIT):
        found += tl.load(partial + share * size + at)
    tl.store(c + at, found.to(tl.bfloat16))
