# Softmax of rows in CuTe DSL: a warp takes a row, reads it twice, and keeps a running maximum and sum.
import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

WARPS = 4  # tune: 1 2 4 8 16 | block: rows of a block, a warp each


@cute.kernel
def rows_of_warps(x: cute.Tensor, y: cute.Tensor, rows: cutlass.Int32, cols: cutlass.Int32):
    lane = cute.arch.thread_idx()[0] % 32
    row = cute.arch.block_idx()[0] * WARPS + cute.arch.thread_idx()[0] // 32
    if row < rows:
        most = cutlass.Float32(-3e38)
        total = cutlass.Float32(0)
        for j in cutlass.range(lane, cols, 32):
            value = x[row, j]
            larger = cute.arch.fmax(most, value)
            total = total * cute.math.exp(most - larger) + cute.math.exp(value - larger)
            most = larger
        for i in cutlass.range_constexpr(5):
            other = cute.arch.shuffle_sync_bfly(most, offset=1 << i)
            beside = cute.arch.shuffle_sync_bfly(total, offset=1 << i)
            larger = cute.arch.fmax(most, other)
            total = total * cute.math.exp(most - larger) + beside * cute.math.exp(other - larger)
            most = larger
        for j in cutlass.range(lane, cols, 32):
            y[row, j] = cute.math.exp(x[row, j] - most) / total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    rows, cols = x.shape
    grid = [cute.ceil_div(rows, WARPS), 1, 1]
    rows_of_warps(x, y, rows, cols).launch(grid=grid, block=[32 * WARPS, 1, 1], stream=stream)


_compiled = {}


def custom_kernel(data):
    x, y = data
    given = from_dlpack(x), from_dlpack(y), cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if x.shape not in _compiled:
        _compiled[x.shape] = cute.compile(launch, *given)
    _compiled[x.shape](*given)
    return y
