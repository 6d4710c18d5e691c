# trimul: kernel 00003 of ksflow, 778.6 us on NVIDIA H100 SXM
# Base: the inherited kernel, with the edges of its launches shortened. 128 channels: every warp of a block loads a part of
# the weights while the L2 fetches its first tiles of x; results leave from two buffers for each warpgroup. 256 and 384
# channels: the first layer norm does not wait for the packing, out_w is packed along. The last launch fetches its next tile.
# What is read or written once passes the L2 first (evict first), and projections go backwards through the positions: what the
# product reads first is what they wrote last.
# For n divisible by 256 an own product instead of the library's: persistent blocks, 128 by 256 tiles, one warp fetches by TMA
# ahead over the borders of tiles, launches are announced early.
# 384 channels: a part of the next tile's x is loaded into registers while the last products of a tile are made.
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

EPS = 1e-5
BLOCKS = 132
FAST = 1


@gluon.jit
def sigmoid(v, FAST: gl.constexpr):
    if FAST:
        half = gl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [v * 0.5], gl.float32, True, 1)
        return half * 0.5 + 0.5
    else:
        return 1 / (1 + gl.exp2(v * -1.4426950408889634))


@gluon.jit
def previous():
    """Wait until the launch before this one has ended and its results can be seen."""
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], gl.int32, False, 1)


@gluon.jit
def next_may_start():
    """The launch behind this one may come up; it waits for the end of this one before it touches results."""
    gl.inline_asm_elementwise("griddepcontrol.launch_dependents; // $0", "=r", [], gl.int32, False, 1)


@gluon.jit
def ahead(x, tile, tiles, C: gl.constexpr):
    """Let L2 fetch a tile of 64 positions of x; they are counted from the end."""
    if tile < tiles:
        first = x + (tiles - 1 - tile) * 64 * C
        lines = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])) * 32
        for part in gl.static_range(C // 64):
            gl.inline_asm_elementwise(
                "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [(first + part * 4096 + lines).to(gl.int64)],
                gl.int32, False, 1,
            )  # fmt: skip


@gluon.jit
def relabel(t, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Of every 16 columns those that one lane has read in a row become two pairs, eight apart."""
    t = t.reshape([ROWS, COLUMNS // 16, 4, 2, 2])
    return t.permute([0, 1, 3, 2, 4]).reshape([ROWS, COLUMNS])


@gluon.jit
def take(source, into, part: gl.constexpr):
    """A quarter of 64 rows of 128 weights, fp32 in global memory, to fp16 in shared memory."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    rows = gl.arange(0, 16, gl.SliceLayout(1, layout))
    columns = gl.arange(0, 128, gl.SliceLayout(0, layout))
    values = gl.load(source + part * 2048 + (rows * 128)[:, None] + columns[None, :])
    into.slice(part * 16, 16).store(relabel(values.to(gl.float16), 16, 128))


@gluon.jit
def leave(result, staged, into, row, place, PENDING: gl.constexpr):
    """Store a tile by TMA; it may still be on its way, and with it so many before it from other buffers."""
    tma.store_wait(PENDING)
    gl.thread_barrier()
    staged.store(result.to(gl.float16))
    fence_async_shared()
    gl.thread_barrier()
    tma.async_copy_shared_to_global(into, [row, place], staged)


@gluon.jit
def walk(x, norm_w, norm_b, mask, left_w, left_gate, right_w, right_gate, out_gate, into, weights, loaded, staged, square,
         batch, tiles, which, step, part: gl.constexpr, FAST: gl.constexpr):  # fmt: skip
    """One warpgroup: a quarter of all weights; tiles of 64 positions, all five projections of each. weights: [10, 64, 128]."""
    ahead(x, which, tiles, 128)
    ahead(x, which + step, tiles, 128)
    for half in gl.static_range(2):
        take(left_w + half * 8192, weights.index(2 * half), part)
        take(left_gate + half * 8192, weights.index(2 * half + 1), part)
        take(right_w + half * 8192, weights.index(2 * half + 4), part)
        take(right_gate + half * 8192, weights.index(2 * half + 5), part)
        take(out_gate + half * 8192, weights.index(half + 8), part)
    fence_async_shared()
    gl.thread_barrier()
    mbarrier.arrive(loaded)
    C: gl.constexpr = 128
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    left_layout: gl.constexpr = gl.DotOperandLayout(0, acc_layout, 2)
    # a lane: rows l / 4 and that + 8 of a warp's 16, columns 4 (l % 4) ... + 3 of every 16
    row_layout: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0], [0, 16], [0, 32], [0, 64]],
        [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]], [], [64, 128])  # fmt: skip
    rows = gl.arange(0, 64, gl.SliceLayout(1, row_layout))
    columns = gl.arange(0, C, gl.SliceLayout(0, row_layout))
    offsets = (rows * C)[:, None] + columns[None, :]
    zero = gl.zeros([64, 64], gl.float32, acc_layout)
    for tile in range(which, tiles, step):
        first = (tiles - 1 - tile) * 64
        values = gl.load(x + first * C + offsets, eviction_policy="evict_first")
        keep = gl.load(mask + first + gl.arange(0, 64, gl.SliceLayout(1, acc_layout)))
        mean = gl.sum(values, 1) * (1.0 / C)
        values = values - mean[:, None]
        scale = gl.rsqrt(gl.sum(values * values, 1) * (1.0 / C) + 1e-5)
        values = values * scale[:, None] * gl.load(norm_w + columns)[None, :] + gl.load(norm_b + columns)[None, :]
        z = gl.convert_layout(relabel(values.to(gl.float16), 64, C), left_layout)
        ahead(x, tile + step, tiles, C)
        mbarrier.wait(loaded, 0)
        item = first // square
        place = first - item * square
        row = item * 128
        for group in range(0, 5):
            top = warpgroup_mma(z, weights.index(group * 2).permute([1, 0]), zero, use_acc=False, is_async=True)
            bottom = warpgroup_mma(z, weights.index(group * 2 + 1).permute([1, 0]), zero, use_acc=False, is_async=True)
            top, bottom = warpgroup_mma_wait(0, deps=[top, bottom])
            bottom = sigmoid(bottom, FAST)
            if group < 4:
                result = top * bottom * keep[:, None]
                side = (group >> 1) * batch + row + (group & 1) * 64
                leave(result.permute([1, 0]), staged.index(group & 1), into, side, place, 1)
            else:
                leave(sigmoid(top, FAST).permute([1, 0]), staged.index(0), into, 3 * batch + row, place, 1)
                leave(bottom.permute([1, 0]), staged.index(1), into, 3 * batch + row + 64, place, 1)
    tma.store_wait(0)


@gluon.jit
def project_resident(x, norm_w, norm_b, mask, left_w, left_gate, right_w, right_gate, out_gate, into, square, batch, tiles,
                     FAST: gl.constexpr):  # fmt: skip
    """All projections, with weights that stay in shared memory; 128 channels. into: a tensor descriptor."""
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    weights = gl.allocate_shared_memory(gl.float16, [10, 64, 128], shared)
    staged0 = gl.allocate_shared_memory(gl.float16, [2, 64, 64], into.layout)
    staged1 = gl.allocate_shared_memory(gl.float16, [2, 64, 64], into.layout)
    staged2 = gl.allocate_shared_memory(gl.float16, [2, 64, 64], into.layout)
    staged3 = gl.allocate_shared_memory(gl.float16, [2, 64, 64], into.layout)
    loaded = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(loaded, count=4)
    fence_async_shared()
    gl.thread_barrier()
    next_may_start()
    which = gl.program_id(0) * 4
    step = gl.num_programs(0) * 4
    gl.warp_specialize(
        [
            (walk, (x, norm_w, norm_b, mask, left_w, left_gate, right_w, right_gate, out_gate, into, weights, loaded,
                    staged0, square, batch, tiles, which, step, 0, FAST)),
            (walk, (x, norm_w, norm_b, mask, left_w, left_gate, right_w, right_gate, out_gate, into, weights, loaded,
                    staged1, square, batch, tiles, which + 1, step, 1, FAST)),
            (walk, (x, norm_w, norm_b, mask, left_w, left_gate, right_w, right_gate, out_gate, into, weights, loaded,
                    staged2, square, batch, tiles, which + 2, step, 2, FAST)),
            (walk, (x, norm_w, norm_b, mask, left_w, left_gate, right_w, right_gate, out_gate, into, weights, loaded,
                    staged3, square, batch, tiles, which + 3, step, 3, FAST)),
        ],
        [4, 4, 4],
        [128, 128, 128],
    )  # fmt: skip


@gluon.jit
def finish_resident(work, norm_w, norm_b, to_out, y, square, size, tiles, SKIP: gl.constexpr, C: gl.constexpr):
    """y = (layer norm of the product, over its channels, times the gate) to_out; to_out, which lies SKIP elements behind its
    pointer, stays in shared memory. 8 warps.
    """
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    weights = gl.allocate_shared_memory(gl.float16, [C // 128, 128, 128], shared)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [8, 1], [1, 0])
    columns = gl.arange(0, 128, gl.SliceLayout(0, layout))
    # rows are relabelled as columns are elsewhere, so that a lane ends with four adjacent channels of y
    row = gl.arange(0, 128, gl.SliceLayout(1, layout))
    row = (row & 113) | ((row & 6) << 1) | ((row & 8) >> 2)
    for part in gl.static_range(C // 128):
        loaded = gl.load(to_out + SKIP + ((row + part * 128) * 128)[:, None] + columns[None, :])
        weights.index(part).store(loaded.to(gl.float16))
    gated = gl.allocate_shared_memory(gl.float16, [128, 64], shared)
    plane: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    hidden = gl.arange(0, 128, gl.SliceLayout(1, plane))
    at = (hidden * square)[:, None] + gl.arange(0, 64, gl.SliceLayout(0, plane))[None, :]
    line = gl.arange(0, 256, gl.BlockedLayout([1], [32], [8], [0]))
    lines = (line % 128) * square + (line // 128) * size
    scales = gl.load(norm_w + hidden)
    shifts = gl.load(norm_b + hidden)
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 64, 16])
    out_layout: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0], [0, 16], [0, 32]],
        [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0], [0, 64]], [], [64, 128])  # fmt: skip
    into = (gl.arange(0, 64, gl.SliceLayout(1, out_layout)) * C)[:, None]
    into = into + gl.arange(0, 128, gl.SliceLayout(0, out_layout))[None, :]
    zero = gl.zeros([64, 128], gl.float32, acc_layout)
    previous()
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        first = (tiles - 1 - tile) * 64
        item = first // square
        source = work + 2 * size + item * 128 * square + first - item * square
        if tile + gl.num_programs(0) < tiles:
            later = (tiles - 1 - tile - gl.num_programs(0)) * 64
            from_item = later // square
            following = work + 2 * size + from_item * 128 * square + later - from_item * square
            gl.inline_asm_elementwise(
                "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [(following + lines).to(gl.int64)], gl.int32, False, 1
            )
        values = gl.load(source + at, eviction_policy="evict_first").to(gl.float32)
        gate = gl.load(source + size + at, eviction_policy="evict_first")
        values = values - (gl.sum(values, 0) * (1.0 / 128))[None, :]
        scale = gl.rsqrt(gl.sum(values * values, 0) * (1.0 / 128) + 1e-5)
        values = (values * scale[None, :] * scales[:, None] + shifts[:, None]) * gate.to(gl.float32)
        gl.thread_barrier()
        gated.store(values.to(gl.float16))
        fence_async_shared()
        gl.thread_barrier()
        for part in gl.static_range(C // 128):
            result = warpgroup_mma(gated.permute([1, 0]), weights.index(part).permute([1, 0]), zero, use_acc=False)
            # pairs of columns eight apart are four adjacent channels
            result = result.reshape([64, 8, 2, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([64, 128])
            result = gl.convert_layout(result, out_layout)
            gl.store(y + first * C + part * 128 + into, result, eviction_policy="evict_first")


@gluon.jit
def fetch_factors(lefts, rights, a, b, full, empty, n, tiles, batch, DEPTH: gl.constexpr):
    """The warp that fetches."""
    down = n // 128
    each = down * (n // 256)
    steps = n // 64
    index = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        matrix = tile // each
        i = matrix * n + (tile - matrix * each) % down * 128
        j = (batch + matrix) * n + (tile - matrix * each) // down * 256
        for k in range(steps):
            slot = index % DEPTH
            mbarrier.wait(empty.index(slot), ((index // DEPTH) & 1) ^ 1)
            mbarrier.expect(full.index(slot), (128 + 256) * 64 * 2)
            tma.async_copy_global_to_shared(lefts, [i, k * 64], full.index(slot), a.index(slot))
            tma.async_copy_global_to_shared(rights, [j, k * 64], full.index(slot), b.index(slot))
            index += 1


@gluon.jit
def multiply_factors(into, a, b, full, empty, staged, n, tiles, batch, half: gl.constexpr, DEPTH: gl.constexpr):
    """64 rows of every tile."""
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16])
    zero = gl.zeros([64, 256], gl.float32, acc_layout)
    down = n // 128
    each = down * (n // 256)
    steps = n // 64
    index = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        matrix = tile // each
        i = (2 * batch + matrix) * n + (tile - matrix * each) % down * 128 + half * 64
        j = (tile - matrix * each) // down * 256
        acc = zero
        for k in range(steps):
            slot = index % DEPTH
            mbarrier.wait(full.index(slot), (index // DEPTH) & 1)
            acc = warpgroup_mma(a.index(slot).slice(half * 64, 64), b.index(slot).permute([1, 0]), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=[acc])
            if k > 0:
                gl.thread_barrier()
                mbarrier.arrive(empty.index((index - 1) % DEPTH))
            index += 1
        acc = warpgroup_mma_wait(0, deps=[acc])
        gl.thread_barrier()
        mbarrier.arrive(empty.index((index - 1) % DEPTH))
        west, east = gl.split(acc.to(gl.float16).reshape([64, 2, 128]).permute([0, 2, 1]))
        send(west, staged, into, i, j)
        send(east, staged, into, i, j + 128)
    tma.store_wait(0)


@gluon.jit
def send(result, staged, into, row, column):
    """Store a tile by TMA; it may still be on its way."""
    tma.store_wait(0)
    gl.thread_barrier()
    staged.store(result)
    fence_async_shared()
    gl.thread_barrier()
    tma.async_copy_shared_to_global(into, [row, column], staged)


@gluon.jit
def product(lefts, rights, into, n, tiles, batch, DEPTH: gl.constexpr):
    """Of every channel left times right, transposed; all in one workspace. lefts, rights, into: tensor descriptors of it."""
    a = gl.allocate_shared_memory(gl.float16, [DEPTH, 128, 64], lefts.layout)
    b = gl.allocate_shared_memory(gl.float16, [DEPTH, 256, 64], rights.layout)
    staged0 = gl.allocate_shared_memory(gl.float16, [64, 128], into.layout)
    staged1 = gl.allocate_shared_memory(gl.float16, [64, 128], into.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(DEPTH):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    fence_async_shared()
    gl.thread_barrier()
    next_may_start()
    previous()
    gl.warp_specialize(
        [
            (multiply_factors, (into, a, b, full, empty, staged0, n, tiles, batch, 0, DEPTH)),
            (multiply_factors, (into, a, b, full, empty, staged1, n, tiles, batch, 1, DEPTH)),
            (fetch_factors, (lefts, rights, a, b, full, empty, n, tiles, batch, DEPTH)),
        ],
        [4, 1],
        [232, 40],
    )


@triton.jit
def pack_stream(left_w, left_gate, right_w, right_gate, out_gate, out_w, packed, C: tl.constexpr):
    """For each half of the hidden channels: stages of 128 x 64. Two sides of C / 64 stages, 64 rows of the projection above
    64 of its gate; then C / 128 stages of the output's gate, 64 channels above the next 64. Then out_w.
    """
    tl.extra.cuda.gdc_launch_dependents()
    K: tl.constexpr = C // 64
    part = tl.program_id(0)
    if part >= 10 * K:
        at = (part - 10 * K) * 1024 + tl.arange(0, 1024)
        tl.store(packed + 640 * C + at, tl.load(out_w + at).to(tl.float16))
        return
    below = part % 2
    stage = part // 2 % (2 * K + K // 2)
    half = part // 2 // (2 * K + K // 2)
    source = left_w
    column = stage
    if stage >= 2 * K:
        source = out_gate
        column = (stage - 2 * K) * 2 + below
    elif stage >= K:
        column = stage - K
        if below == 0:
            source = right_w
        else:
            source = right_gate
    elif below == 1:
        source = left_gate
    rows = tl.arange(0, 64)
    columns = tl.arange(0, 64)
    values = tl.load(source + (half * 64 + rows)[:, None] * C + column * 64 + columns[None, :])
    tl.store(packed + part * 4096 + rows[:, None] * 64 + columns[None, :], values.to(tl.float16))


@gluon.jit
def fetch(stream, ring, full, count, base, STAGES: gl.constexpr, S: gl.constexpr):
    """Begin to load what is number count of this warpgroup's stream."""
    slot = count % STAGES
    mbarrier.expect(full.index(slot), 128 * 64 * 2)
    tma.async_copy_global_to_shared(stream, [(base + count % S) * 128, 0], full.index(slot), ring.index(slot))


@gluon.jit
def half_of_all(x, norm_w, norm_b, mask, stream, into, z, ring, full, ready, done, staged, square, batch, tiles, which, steps,
                half: gl.constexpr, C: gl.constexpr, STAGES: gl.constexpr, FAST: gl.constexpr):  # fmt: skip
    """One warpgroup: normalises half of a tile's positions and projects all of them to half of the hidden channels."""
    K: gl.constexpr = C // 64
    S: gl.constexpr = 2 * K + K // 2
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    row_layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    line_layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, row_layout))
    columns = gl.arange(0, 64, gl.SliceLayout(0, row_layout))
    offsets = (rows * C)[:, None] + columns[None, :]
    lines = gl.arange(0, 128, line_layout) * 32
    zero = gl.zeros([64, 128], gl.float32, acc_layout)
    count = 0
    turn = 0
    begin = x + ((tiles - 1 - which) * 128 + half * 64) * C
    early0 = gl.load(begin + offsets, eviction_policy="evict_first")
    early1 = gl.load(begin + 64 + offsets, eviction_policy="evict_first")
    for tile in range(which, tiles, steps):
        first = (tiles - 1 - tile) * 128
        source = x + (first + half * 64) * C
        chunks = (early0, early1)
        total = gl.zeros([64], gl.float32, gl.SliceLayout(1, row_layout))
        for k in gl.static_range(2, K):
            chunk = gl.load(source + k * 64 + offsets, eviction_policy="evict_first")
            chunks = chunks + (chunk,)
        for k in gl.static_range(K):
            total += gl.sum(chunks[k], 1)
        mean = total * (1.0 / C)
        total = gl.zeros([64], gl.float32, gl.SliceLayout(1, row_layout))
        for k in gl.static_range(K):
            centred = chunks[k] - mean[:, None]
            total += gl.sum(centred * centred, 1)
        scale = gl.rsqrt(total * (1.0 / C) + 1e-5)
        mbarrier.wait(done, (turn & 1) ^ 1)
        for k in gl.static_range(K):
            w = gl.load(norm_w + k * 64 + columns)
            b = gl.load(norm_b + k * 64 + columns)
            value = (chunks[k] - mean[:, None]) * scale[:, None] * w[None, :] + b[None, :]
            z.index(k).slice(half * 64, 64).store(value.to(gl.float16))
        fence_async_shared()
        gl.thread_barrier()
        mbarrier.arrive(ready)
        if turn == 0:  # nothing before this was packed
            previous()
            for stage in gl.static_range(STAGES):
                fetch(stream, ring, full, stage, half * S, STAGES, S)
        if tile + steps < tiles:
            following = x + (first - steps * 128 + half * 64) * C
            for part in gl.static_range(K):
                gl.inline_asm_elementwise(
                    "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [(following + part * 4096 + lines).to(gl.int64)],
                    gl.int32, False, 1,
                )  # fmt: skip
        item = first // square
        place = first - item * square
        row = item * 128 + half * 64
        mbarrier.wait(ready, turn & 1)
        for side in range(2):
            top = zero
            bottom = zero
            for k in gl.static_range(K):
                slot = count % STAGES
                mbarrier.wait(full.index(slot), (count // STAGES) & 1)
                operand = z.index(k).permute([1, 0])
                top = warpgroup_mma(ring.index(slot).slice(0, 64), operand, top, use_acc=k > 0, is_async=True)
                bottom = warpgroup_mma(ring.index(slot).slice(64, 64), operand, bottom, use_acc=k > 0, is_async=True)
                if k > 0:
                    top, bottom = warpgroup_mma_wait(2, deps=[top, bottom])
                    gl.thread_barrier()
                    fetch(stream, ring, full, count - 1 + STAGES, half * S, STAGES, S)
                count += 1
            top, bottom = warpgroup_mma_wait(0, deps=[top, bottom])
            gl.thread_barrier()
            fetch(stream, ring, full, count - 1 + STAGES, half * S, STAGES, S)
            keep = gl.load(mask + first + gl.arange(0, 128, gl.SliceLayout(0, acc_layout)))
            leave(top * sigmoid(bottom, FAST) * keep[None, :], staged, into, side * batch + row, place, 0)
        top = zero
        for k in gl.static_range(K // 2):
            slot = count % STAGES
            mbarrier.wait(full.index(slot), (count // STAGES) & 1)
            top = warpgroup_mma(
                ring.index(slot).slice(0, 64), z.index(2 * k).permute([1, 0]), top, use_acc=k > 0, is_async=True)
            top = warpgroup_mma(
                ring.index(slot).slice(64, 64), z.index(2 * k + 1).permute([1, 0]), top, is_async=True)
            if k > 0:
                top = warpgroup_mma_wait(2, deps=[top])
                gl.thread_barrier()
                fetch(stream, ring, full, count - 1 + STAGES, half * S, STAGES, S)
            count += 1
        begin = source - gl.where(tile + steps < tiles, steps, 0) * 128 * C  # while these products are made
        early0 = gl.load(begin + offsets, eviction_policy="evict_first")
        early1 = gl.load(begin + 64 + offsets, eviction_policy="evict_first")
        top = warpgroup_mma_wait(0, deps=[top])
        gl.thread_barrier()
        mbarrier.arrive(done)
        fetch(stream, ring, full, count - 1 + STAGES, half * S, STAGES, S)
        leave(sigmoid(top, FAST), staged, into, 3 * batch + row, place, 0)
        turn += 1
    for stage in gl.static_range(STAGES):  # what was begun and is not needed
        mbarrier.wait(full.index(count % STAGES), (count // STAGES) & 1)
        count += 1
    tma.store_wait(0)


@gluon.jit
def project_stream(x, norm_w, norm_b, mask, stream, into, square, batch, tiles, C: gl.constexpr, STAGES: gl.constexpr,
                   FAST: gl.constexpr):  # fmt: skip
    """All projections of up to 384 channels. stream, into: tensor descriptors."""
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    z = gl.allocate_shared_memory(gl.float16, [C // 64, 128, 64], shared)
    ring0 = gl.allocate_shared_memory(gl.float16, [STAGES, 128, 64], shared)
    ring1 = gl.allocate_shared_memory(gl.float16, [STAGES, 128, 64], shared)
    staged0 = gl.allocate_shared_memory(gl.float16, [64, 128], into.layout)
    staged1 = gl.allocate_shared_memory(gl.float16, [64, 128], into.layout)
    full0 = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full1 = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full0.index(stage), count=1)
        mbarrier.init(full1.index(stage), count=1)
    mbarrier.init(ready, count=2)
    mbarrier.init(done, count=2)
    fence_async_shared()
    gl.thread_barrier()
    next_may_start()
    which = gl.program_id(0)
    steps = gl.num_programs(0)
    gl.warp_specialize(
        [
            (half_of_all, (x, norm_w, norm_b, mask, stream, into, z, ring0, full0, ready, done, staged0, square, batch, tiles,
                           which, steps, 0, C, STAGES, FAST)),
            (half_of_all, (x, norm_w, norm_b, mask, stream, into, z, ring1, full1, ready, done, staged1, square, batch, tiles,
                           which, steps, 1, C, STAGES, FAST)),
        ],
        [4],
        [240],
    )  # fmt: skip


STREAM = gl.NVMMASharedLayout(128, 16, 2)


@triton.jit
def pack(left_w, left_gate, right_w, right_gate, out_gate, packed, c, BLOCK: tl.constexpr):
    """packed: five blocks of 128 rows, each 64 rows of a projection and 64 of its gate (the fifth: out_gate)."""
    block = tl.program_id(0)
    half = (block >> 1) & 1
    source = left_w
    if block >= 8:
        source = out_gate
        half = block - 8
    elif block >= 4:
        if block % 2 == 0:
            source = right_w
        else:
            source = right_gate
    elif block % 2 == 1:
        source = left_gate
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(packed + block * 64 * c + at, tl.load(source + half * 64 * c + at).to(tl.float16))


@triton.jit
def normalise(x, weight, bias, z, c: tl.constexpr, eps, ROWS: tl.constexpr, C: tl.constexpr):
    """z = layer norm of x, in fp16."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channels = tl.arange(0, C)
    inside = (channels < c)[None, :]
    values = tl.load(x + rows[:, None] * c + channels[None, :], mask=inside, other=0)
    mean = tl.sum(values, 1) * (1.0 / c)
    centred = tl.where(inside, values - mean[:, None], 0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) * (1.0 / c) + eps)
    w = tl.load(weight + channels, mask=channels < c, other=0)
    b = tl.load(bias + channels, mask=channels < c, other=0)
    result = centred * scale[:, None] * w[None, :] + b[None, :]
    tl.store(z + rows[:, None] * c + channels[None, :], result.to(tl.float16), mask=inside)


@triton.jit
def emit(first, second, group, keep, out, size, square, hidden, place):
    """Groups 0-3: halves of left and right, gated and masked; group 4: the gate of the output."""
    bottom = tl.sigmoid(second)
    if group < 4:
        into = out + (group >> 1) * size + ((group & 1) * 64 + hidden)[:, None] * square + place[None, :]
        tl.store(into, (first * bottom * keep[None, :]).to(tl.float16))
    else:
        into = out + 3 * size + hidden[:, None] * square + place[None, :]
        tl.store(into, tl.sigmoid(first).to(tl.float16))
        tl.store(into + 64 * square, bottom.to(tl.float16))


@triton.jit
def project(z, packed, mask, work, square, size, C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    """One of five groups of projections of BP positions."""
    group = tl.program_id(0)
    first = tl.program_id(1) * BP
    positions = first + tl.arange(0, BP)
    depth = tl.arange(0, BC)
    hidden = tl.arange(0, 64)
    a = z + positions[None, :] * C + depth[:, None]
    w = packed + group * 128 * C + hidden[:, None] * C + depth[None, :]
    top = tl.zeros((64, BP), dtype=tl.float32)
    bottom = tl.zeros((64, BP), dtype=tl.float32)
    for _ in range(0, C // BC):
        tile = tl.load(a)
        top = tl.dot(tl.load(w), tile, top)
        bottom = tl.dot(tl.load(w + 64 * C), tile, bottom)
        a += BC
        w += BC
    keep = tl.load(mask + positions)
    item = first // square
    place = first - item * square + tl.arange(0, BP)
    emit(top, bottom, group, keep, work + item * 128 * square, size, square, hidden, place)


class Map(NamedTuple):
    """What a launch needs to know of a tensor descriptor."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"


PACK = {"num_warps": 4}
RESIDENT = {"num_warps": 4}
STREAMED = {"num_warps": 4, "maxnreg": 240, "launch_pdl": True}
PRODUCT = {"num_warps": 4, "launch_pdl": True}
FINISH128 = {"num_warps": 8, "maxnreg": 80, "launch_pdl": True}
FINISH = {"num_warps": 8, "maxnreg": 128, "launch_pdl": True}
compiled = {}
stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def launch(key, kernel, blocks, options, *args):
    """Through the compiler's front end the first time, directly from then on."""
    found = compiled.get(key)
    if found is not None:
        found.run(
            blocks, 1, 1, stream_of(key[1]), found.function, found.packed_metadata, None, None, None,
            *[one.data_ptr() if isinstance(one, torch.Tensor) else one for one in args],
        )  # fmt: skip
        return
    args = [TensorDescriptor(one.base, *map(list, one[1:4]), STREAM) if isinstance(one, Map) else one for one in args]
    found = kernel[(blocks,)](*args, **options)
    if stream_of and all(one.data_ptr() % 16 == 0 for one in args if isinstance(one, torch.Tensor)):
        compiled[key] = found


def custom_kernel(data):
    x, mask, norm_w, norm_b, left_w, right_w, left_gate, right_gate, out_gate, out_norm_w, out_norm_b, out_w, y = data
    bs, n, _, c = x.shape
    square, batch = n * n, bs * 128
    count, size = bs * square, batch * square
    work = torch.empty((4, batch, n, n), dtype=torch.float16, device=x.device)
    tiles, skip = count // 64, 0
    shape = (x.get_device(), bs, n, c)
    if c == 128:
        into = Map(work, (4 * batch, square), (square, 1), (64, 64))
        launch(
            ("resident", *shape), project_resident, min(BLOCKS, (tiles + 3) // 4), RESIDENT, x, norm_w, norm_b, mask, left_w,
            left_gate, right_w, right_gate, out_gate, into, square, batch, tiles, FAST,
        )  # fmt: skip
    elif c <= 384:
        packed = torch.empty(768 * c, dtype=torch.float16, device=x.device)
        launch(
            ("pack", *shape), pack_stream, 5 * c // 32 + c // 8, PACK, left_w, left_gate, right_w, right_gate, out_gate, out_w,
            packed, c,
        )  # fmt: skip
        stream = Map(packed, (10 * c, 64), (64, 1), (128, 64))
        into = Map(work, (4 * batch, square), (square, 1), (64, 128))
        launch(
            ("stream", *shape), project_stream, min(BLOCKS, count // 128), STREAMED, x, norm_w, norm_b, mask, stream, into,
            square, batch, count // 128, c, 3, FAST,
        )  # fmt: skip
        out_w, skip = packed, 640 * c
    else:
        packed = torch.empty((640, c), dtype=torch.float16, device=x.device)
        pack[(10, c // 32)](left_w, left_gate, right_w, right_gate, out_gate, packed, c, BLOCK=2048, num_warps=4)
        z = torch.empty((count, c), dtype=torch.float16, device=x.device)
        normalise[(count // 8,)](x, norm_w, norm_b, z, c, EPS, ROWS=8, C=triton.next_power_of_2(c), num_warps=4)
        bp = 128 if n >= 256 else 64
        project[(5, count // bp)](z, packed, mask, work, square, size, C=c, BP=bp, BC=64, num_warps=4, num_stages=3)
    if n % 256:
        left, right, summed, _ = work.unbind()
        torch.bmm(left, right.mT, out=summed)
    else:
        rows, strides = (4 * batch * n, n), (n, 1)
        pieces = batch * (n // 128) * (n // 256)
        launch(
            ("product", *shape), product, min(BLOCKS, pieces), PRODUCT, Map(work, rows, strides, (128, 64)),
            Map(work, rows, strides, (256, 64)), Map(work, rows, strides, (64, 128)), n, pieces, batch, 4,
        )  # fmt: skip
    blocks = BLOCKS * (3 if c <= 256 else 2 if c == 384 else 1)
    launch(
        ("finish", *shape), finish_resident, min(blocks, tiles), FINISH128 if c == 128 else FINISH, work, out_norm_w,
        out_norm_b, out_w, y, square, size, tiles, skip, c,
    )  # fmt: skip
    return y
