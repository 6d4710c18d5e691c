# fp16 operands, float32 sums, in five launches and one library call. Weights are packed anew in every call; nothing is
# kept between calls. Positions are pairs (i, k) of all items of the batch in a row; n is a multiple of 32.
import torch
import triton
import triton.language as tl

BP, BH, BC = 64, 64, 64  # positions, hidden channels, channels of a tile
EPS = 1e-5


@triton.jit
def normalise(x, weight, bias, z, c, eps, ROWS: tl.constexpr, C: tl.constexpr):
    """z = layer norm of x, in fp16. C: c, rounded up to a power of two."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    channels = tl.arange(0, C)
    inside = (channels < c)[None, :]
    values = tl.load(x + rows[:, None] * c + channels[None, :], mask=inside, other=0)
    mean = tl.sum(values, 1) / c
    centred = tl.where(inside, values - mean[:, None], 0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / c + eps)
    w = tl.load(weight + channels, mask=channels < c, other=0)
    b = tl.load(bias + channels, mask=channels < c, other=0)
    result = centred * scale[:, None] * w[None, :] + b[None, :]
    tl.store(z + rows[:, None] * c + channels[None, :], result.to(tl.float16), mask=inside)


@triton.jit
def project(z, packed, mask, sides, c, h, square, BP: tl.constexpr, BH: tl.constexpr, BC: tl.constexpr):
    """sides[side, item, channel, position] = mask z W sigmoid(z G). packed: [side, W or G, h, c]."""
    first = tl.program_id(0).to(tl.int64) * BP
    side = tl.program_id(2)
    positions = first + tl.arange(0, BP)
    hidden = tl.program_id(1) * BH + tl.arange(0, BH)
    depth = tl.arange(0, BC)
    a = z + positions[:, None] * c + depth[None, :]
    w = packed + side * 2 * h * c + hidden[None, :] * c + depth[:, None]
    value = tl.zeros((BP, BH), dtype=tl.float32)
    logit = tl.zeros((BP, BH), dtype=tl.float32)
    for _ in range(0, c // BC):
        tile = tl.load(a)
        value += tl.dot(tile, tl.load(w))
        logit += tl.dot(tile, tl.load(w + h * c))
        a += BC
        w += BC
    value = value * tl.sigmoid(logit) * tl.load(mask + positions)[:, None]
    item = first // square
    place = first - item * square + tl.arange(0, BP)
    items = tl.num_programs(0).to(tl.int64) * BP // square
    out = sides + ((side * items + item) * h + hidden[None, :]) * square + place[:, None]
    tl.store(out, value.to(tl.float16))


@triton.jit
def finish(product, z, gates, norm_w, norm_b, to_out, y, c, square, eps,
           H: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):  # fmt: skip
    """y = (layer norm of the product, over its channels, times the gate) to_out."""
    first = tl.program_id(0).to(tl.int64) * BP
    item = first // square
    positions = first + tl.arange(0, BP)
    place = first - item * square + tl.arange(0, BP)
    hidden = tl.arange(0, H)
    depth = tl.arange(0, BC)
    a = z + positions[:, None] * c + depth[None, :]
    g = gates + hidden[None, :] * c + depth[:, None]
    logit = tl.zeros((BP, H), dtype=tl.float32)
    for _ in range(0, c // BC):
        logit += tl.dot(tl.load(a), tl.load(g))
        a += BC
        g += BC
    values = tl.load(product + (item * H + hidden[None, :]) * square + place[:, None]).to(tl.float32)
    centred = values - (tl.sum(values, 1) / H)[:, None]
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / H + eps)
    normed = centred * scale[:, None] * tl.load(norm_w + hidden)[None, :] + tl.load(norm_b + hidden)[None, :]
    gated = (normed * tl.sigmoid(logit)).to(tl.float16)
    w = to_out + depth[None, :] * H + hidden[:, None]
    out = y + positions[:, None] * c + depth[None, :]
    for _ in range(0, c // BC):
        tl.store(out, tl.dot(gated, tl.load(w)))
        w += BC * H
        out += BC


def custom_kernel(data):
    x, mask, norm_w, norm_b, left_w, right_w, left_gate, right_gate, out_gate, out_norm_w, out_norm_b, out_w, y = data
    bs, n, _, c = x.shape
    h, square = left_w.shape[0], n * n
    count = bs * square
    packed = torch.cat((left_w, left_gate, right_w, right_gate, out_gate, out_w.view(h, c))).half()
    z = torch.empty((count, c), dtype=torch.float16, device=x.device)
    normalise[(count // 8,)](x, norm_w, norm_b, z, c, EPS, ROWS=8, C=triton.next_power_of_2(c), num_warps=4)
    sides = torch.empty((2, bs * h, n, n), dtype=torch.float16, device=x.device)
    grid = (count // BP, h // BH, 2)
    project[grid](z, packed, mask, sides, c, h, square, BP=BP, BH=BH, BC=BC, num_warps=4, num_stages=3)
    product = torch.bmm(sides[0], sides[1].transpose(1, 2))
    finish[(count // BP,)](
        product, z, packed[4 * h :], out_norm_w, out_norm_b, packed[5 * h :], y, c, square, EPS,
        H=h, BP=BP, BC=BC, num_warps=4, num_stages=2,
    )  # fmt: skip
    return y
