# The product in Helion: PyTorch turns the operands; 128 of k go to the matrix unit at a time, whose sums are added with
# their scales.
import helion
import helion.language as hl
import torch

BM = 64  # tune: 32 64 128 | tile: rows of c
BN = 128  # tune: 64 128 | tile: columns of c
WARPS = 4  # tune: 4 8 | block: warps of a program
STAGES = 3  # tune: 1 2 3 4 | prefetch: tiles in flight


@helion.kernel(
    static_shapes=True, config=helion.Config(block_sizes=[BM, BN], num_warps=WARPS, num_stages=STAGES)
)
def product(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    m, k = a.size()
    n = b.size(0)
    for row, column in hl.tile([m, n]):
        total = hl.zeros([row, column], dtype=torch.float32)
        for depth in hl.tile(k, block_size=128):
            part = hl.dot(a[row, depth], b[column, depth].T)
            scale = a_scale[row, depth.id][:, None] * b_scale[column.index // 128, depth.id][None, :]
            total = total + part * scale
        c[row, column] = total.to(torch.bfloat16)
    return c


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    product(a.contiguous(), b.contiguous(), a_scale, b_scale, c)
    return c
