# The product in TileLang: PyTorch turns the operands, tiles go through shared memory, 128 of k to the matrix unit at a
# time, whose sums are added with their scales.
import tilelang
import tilelang.language as T

BM = 64  # tune: 64 128 | tile: rows of c
BN = 128  # tune: 64 128 | tile: columns of c
STAGES = 3  # tune: 1 2 3 4 | prefetch: tiles in flight
THREADS = 128  # tune: 128 256 | block: threads


@tilelang.jit
def product(dtype):
    m, n, blocks = T.dynamic("m"), T.dynamic("n"), T.dynamic("blocks")

    @T.prim_func
    def main(
        a: T.Tensor((m, blocks * 128), dtype),
        b: T.Tensor((n, blocks * 128), dtype),
        a_scale: T.Tensor((blocks, m), "float32"),
        b_scale: T.Tensor((blocks, (n + 127) // 128), "float32"),
        c: T.Tensor((m, n), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(n, BN), T.ceildiv(m, BM), threads=THREADS) as (bx, by):
            left = T.alloc_shared((BM, 128), dtype)
            right = T.alloc_shared((BN, 128), dtype)
            part = T.alloc_fragment((BM, BN), "float32")
            total = T.alloc_fragment((BM, BN), "float32")
            T.clear(total)
            for block in T.Pipelined(blocks, num_stages=STAGES):
                T.copy(a[by * BM, block * 128], left)
                T.copy(b[bx * BN, block * 128], right)
                T.clear(part)
                T.gemm(left, right, part, transpose_B=True)
                for i, j in T.Parallel(BM, BN):
                    if by * BM + i < m:
                        total[i, j] += part[i, j] * a_scale[block, by * BM + i] * b_scale[block, bx * BN // 128]
            T.copy(total, c[by * BM, bx * BN])

    return main


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    product(str(a.dtype).removeprefix("torch."))(a.contiguous(), b.contiguous(), a_scale.T, b_scale.T, c)
    return c
