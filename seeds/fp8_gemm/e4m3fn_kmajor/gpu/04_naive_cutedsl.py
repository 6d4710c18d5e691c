# The product in CuTe DSL, naive: a thread for each element of c, 8-bit floats by a table, sums of 128 scaled one by one.
import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

TX = 32  # tune: 16 32 64 | block: columns of a block
TY = 8  # tune: 4 8 16 | block: rows of a block


@cute.kernel
def product(
    a: cute.Tensor, b: cute.Tensor, a_scale: cute.Tensor, b_scale: cute.Tensor, c: cute.Tensor, values: cute.Tensor
):
    m, n = c.shape
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    row, column = by * TY + ty, bx * TX + tx
    if row < m and column < n:
        total = cutlass.Float32(0)
        for block in cutlass.range(a_scale.shape[1]):
            part = cutlass.Float32(0)
            for i in cutlass.range(128, unroll=8):
                left = values[cutlass.Int32(a[row, block * 128 + i])]
                part = part + left * values[cutlass.Int32(b[column, block * 128 + i])]
            total = total + part * a_scale[row, block] * b_scale[column // 128, block]
        c[row, column] = total.to(cutlass.BFloat16)


@cute.jit
def launch(
    a: cute.Tensor,
    b: cute.Tensor,
    a_scale: cute.Tensor,
    b_scale: cute.Tensor,
    c: cute.Tensor,
    values: cute.Tensor,
    stream: cuda.CUstream,
):
    m, n = c.shape
    grid = [cute.ceil_div(n, TX), cute.ceil_div(m, TY), 1]
    product(a, b, a_scale, b_scale, c, values).launch(grid=grid, block=[TX, TY, 1], stream=stream)


_compiled, _values = {}, {}


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    if a.dtype not in _values:
        codes = torch.arange(256, dtype=torch.uint8, device=a.device)
        _values[a.dtype] = codes.view(a.dtype).float()
    tensors = a.view(torch.uint8), b.view(torch.uint8), a_scale, b_scale, c, _values[a.dtype]
    given = *map(from_dlpack, tensors), cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    key = (a.shape, b.shape, a.stride(), b.stride())
    if key not in _compiled:
        _compiled[key] = cute.compile(launch, *given)
    _compiled[key](*given)
    return c
