# For weights that are declared static (STATIC_WEIGHTS): the inherited kernel, but weights are converted and packed once for
# each number of channels and kept. The launch that packs is left out from the second call on, so that the one behind it is
# no programmatic dependent any more; blocks read 16-bit weights instead of 32-bit ones.
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
def relabel(t, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Of every 16 columns those that one lane has read in a row become two pairs, eight apart."""
    t = t.reshape([ROWS, COLUMNS // 16, 4, 2, 2])
    return t.permute([0, 1, 3, 2, 4]).reshape([ROWS, COLUMNS])


@gluon.jit
def take(source, into, ROWS: gl.constexpr, C: gl.constexpr):
    """Weights, fp32 in global memory, to fp16 in shared memory: [ROWS, C]."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, C, gl.SliceLayout(0, layout))
    values = gl.load(source + (rows * C)[:, None] + columns[None, :])
    into.store(relabel(values.to(gl.float16), ROWS, C))


@gluon.jit
def leave(result, staged, into, row, place):
    """Store a tile by TMA; it may still be on its way."""
    tma.store_wait(0)
    gl.thread_barrier()
    staged.store(result.to(gl.float16))
    fence_async_shared()
    gl.thread_barrier()
    tma.async_copy_shared_to_global(into, [row, place], staged)


@gluon.jit
def walk(x, norm_w, norm_b, mask, into, weights, staged, square, batch, tiles, which, step, FAST: gl.constexpr):
    """One warpgroup: tiles of 64 positions, all five projections of each. weights: [10, 64, 128]."""
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
    lines = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])) * 32
    zero = gl.zeros([64, 64], gl.float32, acc_layout)
    for tile in range(which, tiles, step):
        first = tile * 64
        values = gl.load(x + first * C + offsets)
        keep = gl.load(mask + first + gl.arange(0, 64, gl.SliceLayout(1, acc_layout)))
        mean = gl.sum(values, 1) * (1.0 / C)
        values = values - mean[:, None]
        scale = gl.rsqrt(gl.sum(values * values, 1) * (1.0 / C) + 1e-5)
        values = values * scale[:, None] * gl.load(norm_w + columns)[None, :] + gl.load(norm_b + columns)[None, :]
        z = gl.convert_layout(relabel(values.to(gl.float16), 64, C), left_layout)
        if tile + step < tiles:
            following = x + (tile + step) * 64 * C
            for part in gl.static_range(2):
                gl.inline_asm_elementwise(
                    "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [(following + part * 4096 + lines).to(gl.int64)],
                    gl.int32, False, 1,
                )  # fmt: skip
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
                leave(result.permute([1, 0]), staged, into, (group >> 1) * batch + row + (group & 1) * 64, place)
            else:
                leave(sigmoid(top, FAST).permute([1, 0]), staged, into, 3 * batch + row, place)
                leave(bottom.permute([1, 0]), staged, into, 3 * batch + row + 64, place)
    tma.store_wait(0)


@gluon.jit
def project_resident(x, norm_w, norm_b, mask, left_w, left_gate, right_w, right_gate, out_gate, into, square, batch, tiles,
                     FAST: gl.constexpr):  # fmt: skip
    """All projections, with weights that stay in shared memory; 128 channels. into: a tensor descriptor."""
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    weights = gl.allocate_shared_memory(gl.float16, [10, 64, 128], shared)
    staged = gl.allocate_shared_memory(gl.float16, [4, 64, 64], into.layout)
    for half in gl.static_range(2):
        take(left_w + half * 8192, weights.index(2 * half), 64, 128)
        take(left_gate + half * 8192, weights.index(2 * half + 1), 64, 128)
        take(right_w + half * 8192, weights.index(2 * half + 4), 64, 128)
        take(right_gate + half * 8192, weights.index(2 * half + 5), 64, 128)
        take(out_gate + half * 8192, weights.index(half + 8), 64, 128)
    fence_async_shared()
    gl.thread_barrier()
    which = gl.program_id(0) * 4
    step = gl.num_programs(0) * 4
    gl.warp_specialize(
        [
            (walk, (x, norm_w, norm_b, mask, into, weights, staged.index(0), square, batch, tiles, which, step, FAST)),
            (walk, (x, norm_w, norm_b, mask, into, weights, staged.index(1), square, batch, tiles, which + 1, step, FAST)),
            (walk, (x, norm_w, norm_b, mask, into, weights, staged.index(2), square, batch, tiles, which + 2, step, FAST)),
            (walk, (x, norm_w, norm_b, mask, into, weights, staged.index(3), square, batch, tiles, which + 3, step, FAST)),
        ],
        [4, 4, 4],
        [128, 128, 128],
    )


@gluon.jit
def finish_resident(work, norm_w, norm_b, to_out, y, square, size, tiles, C: gl.constexpr):
    """y = (layer norm of the product, over its channels, times the gate) to_out; to_out stays in shared memory. 8 warps."""
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    weights = gl.allocate_shared_memory(gl.float16, [C // 128, 128, 128], shared)
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [8, 1], [1, 0])
    columns = gl.arange(0, 128, gl.SliceLayout(0, layout))
    # rows are relabelled as columns are elsewhere, so that a lane ends with four adjacent channels of y
    row = gl.arange(0, 128, gl.SliceLayout(1, layout))
    row = (row & 113) | ((row & 6) << 1) | ((row & 8) >> 2)
    for part in gl.static_range(C // 128):
        loaded = gl.load(to_out + ((row + part * 128) * 128)[:, None] + columns[None, :])
        weights.index(part).store(loaded.to(gl.float16))
    gated = gl.allocate_shared_memory(gl.float16, [128, 64], shared)
    plane: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    hidden = gl.arange(0, 128, gl.SliceLayout(1, plane))
    at = (hidden * square)[:, None] + gl.arange(0, 64, gl.SliceLayout(0, plane))[None, :]
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
        values = gl.load(source + at).to(gl.float32)
        gate = gl.load(source + size + at)
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
            gl.store(y + first * C + part * 128 + into, gl.convert_layout(result, out_layout))


@triton.jit
def pack_stream(left_w, left_gate, right_w, right_gate, out_gate, packed, C: tl.constexpr):
    """For each half of the hidden channels: stages of 128 x 64. Two sides of C / 64 stages, 64 rows of the projection above
    64 of its gate; then C / 128 stages of the output's gate, 64 channels above the next 64.
    """
    tl.extra.cuda.gdc_launch_dependents()
    K: tl.constexpr = C // 64
    part = tl.program_id(0)
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
    previous()
    for ahead in gl.static_range(STAGES):
        fetch(stream, ring, full, ahead, half * S, STAGES, S)
    count = 0
    turn = 0
    for tile in range(which, tiles, steps):
        source = x + (tile * 128 + half * 64) * C
        chunks = ()
        total = gl.zeros([64], gl.float32, gl.SliceLayout(1, row_layout))
        for k in gl.static_range(K):
            chunk = gl.load(source + k * 64 + offsets)
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
        if tile + steps < tiles:
            following = x + ((tile + steps) * 128 + half * 64) * C
            for part in gl.static_range(K):
                gl.inline_asm_elementwise(
                    "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [(following + part * 4096 + lines).to(gl.int64)],
                    gl.int32, False, 1,
                )  # fmt: skip
        first = tile * 128
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
            leave(top * sigmoid(bottom, FAST) * keep[None, :], staged, into, side * batch + row, place)
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
        top = warpgroup_mma_wait(0, deps=[top])
        gl.thread_barrier()
        mbarrier.arrive(done)
        fetch(stream, ring, full, count - 1 + STAGES, half * S, STAGES, S)
        leave(sigmoid(top, FAST), staged, into, 3 * batch + row, place)
        turn += 1
    for ahead in gl.static_range(STAGES):  # what was begun and is not needed
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
STREAMED = {"num_warps": 4, "maxnreg": 240}
FINISH128 = {"num_warps": 8, "maxnreg": 80, "launch_pdl": True}
FINISH = {"num_warps": 8, "maxnreg": 128, "launch_pdl": True}
compiled = {}
kept = {}
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
    args = [TensorDescriptor(one.base, list(one.shape), list(one.strides), list(one.block_shape), STREAM) if isinstance(one, Map) else one for one in args]
    found = kernel[(blocks,)](*args, **options)
    if stream_of and all(one.data_ptr() % 16 == 0 for one in args if isinstance(one, torch.Tensor)):
        compiled[key] = found


def pack_once(c, *weights):
    """Weights in 16 bits, and all but the last packed as the launches for so many channels want them."""
    packed = torch.empty((10 * c, 64), dtype=torch.float16, device=weights[0].device)
    if 128 < c <= 384:
        pack_stream[(5 * c // 32,)](*weights[:5], packed, c, **PACK)
    elif c > 384:
        pack[(10, c // 32)](*weights[:5], packed, c, BLOCK=2048, num_warps=4)
    return *(one.half() for one in weights), packed


def custom_kernel(data):
    x, mask, norm_w, norm_b, left_w, right_w, left_gate, right_gate, out_gate, out_norm_w, out_norm_b, out_w, y = data
    bs, n, _, c = x.shape
    square, batch = n * n, bs * 128
    count, size = bs * square, batch * square
    work = torch.empty((4 * batch, n, n), dtype=torch.float16, device=x.device)
    tiles = count // 64
    shape = (x.get_device(), bs, n, c)
    found = kept.get(shape[::3])
    if found is None:
        found = kept[shape[::3]] = pack_once(c, left_w, left_gate, right_w, right_gate, out_gate, out_w)
    left_w, left_gate, right_w, right_gate, out_gate, out_w, packed = found
    if c == 128:
        into = Map(work, (4 * batch, square), (square, 1), (64, 64))
        launch(
            ("resident", *shape), project_resident, min(BLOCKS, (tiles + 3) // 4), RESIDENT, x, norm_w, norm_b, mask, left_w,
            left_gate, right_w, right_gate, out_gate, into, square, batch, tiles, FAST,
        )  # fmt: skip
    elif c <= 384:
        stream = Map(packed, (10 * c, 64), (64, 1), (128, 64))
        into = Map(work, (4 * batch, square), (square, 1), (64, 128))
        launch(
            ("stream", *shape), project_stream, min(BLOCKS, count // 128), STREAMED, x, norm_w, norm_b, mask, stream, into,
            square, batch, count // 128, c, 3, FAST,
        )  # fmt: skip
    else:
        z = torch.empty((count, c), dtype=torch.float16, device=x.device)
        normalise[(count // 8,)](x, norm_w, norm_b, z, c, EPS, ROWS=8, C=triton.next_power_of_2(c), num_warps=4)
        bp = 128 if n >= 256 else 64
        project[(5, count // bp)](z, packed, mask, work, square, size, C=c, BP=bp, BC=64, num_warps=4, num_stages=3)
    torch.bmm(work[:batch], work[batch : 2 * batch].transpose(1, 2), out=work[2 * batch : 3 * batch])
    blocks = BLOCKS * (3 if c <= 256 else 2 if c == 384 else 1)
    launch(
        ("finish", *shape), finish_resident, min(blocks, tiles), FINISH128 if c == 128 else FINISH, work, out_norm_w,
        out_norm_b, out_w, y, square, size, tiles, c,
    )  # fmt: skip
    return y
