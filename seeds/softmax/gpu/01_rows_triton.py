# Softmax of rows: how often a row is read, how much of it at once, and how many short rows a program has are tunables. The
# declared values are the naive ones. FORM = 2 reads a row once and keeps it in registers.
import triton
import triton.language as tl

FORM = 0  # tune: 0 1 2 | form: maximum, sum and result in three passes; maximum with sum in one; the row in registers
ROWS = 1  # tune: 1 2 4 8 | tile: rows of a program, where a row has at most 1024 elements
BLOCK = 256  # tune: 256 512 1024 2048 4096 | block: elements of a row at a time, where it is not kept | if FORM != 2
EACH = 8  # tune: 4 8 16 32 | tile: elements of a thread
# require: ROWS * BLOCK <= 8192 or FORM == 2
# launch: softmax [cdiv(rows, ROWS if cols <= 1024 else 1)] warps max(1, min(16, (ROWS if cols <= 1024 else 1) * (BLOCK if FORM < 2 else 256 if cols <= 256 else 1024 if cols <= 1024 else 8192 if cols <= 8192 else 65536) // (32 * EACH))) stages 2 (x, y, rows, cols, FORM=FORM, ROWS=ROWS if cols <= 1024 else 1, BLOCK=BLOCK if FORM < 2 else 256 if cols <= 256 else 1024 if cols <= 1024 else 8192 if cols <= 8192 else 65536)


@triton.jit
def softmax(x, y, rows, cols, FORM: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """y[i, j] = exp(x[i, j] - max(x[i])) / sum(exp(x[i] - max(x[i])))."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    start = row.to(tl.int64)[:, None] * cols
    column = tl.arange(0, BLOCK)[None, :]
    if FORM == 2:
        here = inside & (column < cols)
        value = tl.load(x + start + column, mask=here, other=float("-inf"))
        value = tl.exp(value - tl.max(value, axis=1)[:, None])
        tl.store(y + start + column, value / tl.sum(value, axis=1)[:, None], mask=here)
    else:
        # Elements meet across a tile only after the loop. A finite start, because -inf less itself is no number.
        most = tl.full((ROWS, BLOCK), -3e38, tl.float32)
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        for first in range(0, cols, BLOCK):
            here = inside & (first + column < cols)
            value = tl.load(x + start + first + column, mask=here, other=-3e38)
            larger = tl.maximum(most, value)
            if FORM == 1:
                total = total * tl.exp(most - larger) + tl.exp(value - larger)
            most = larger
        largest = tl.max(most, axis=1)[:, None]
        if FORM == 0:
            for first in range(0, cols, BLOCK):
                here = inside & (first + column < cols)
                value = tl.load(x + start + first + column, mask=here, other=float("-inf"))
                total += tl.exp(value - largest)
        else:
            total *= tl.exp(most - largest)
        whole = tl.sum(total, axis=1)[:, None]
        for first in range(0, cols, BLOCK):
            here = inside & (first + column < cols)
            value = tl.load(x + start + first + column, mask=here)
            tl.store(y + start + first + column, tl.exp(value - largest) / whole, mask=here)
