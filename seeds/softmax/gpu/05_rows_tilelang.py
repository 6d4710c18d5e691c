# Softmax of rows in TileLang: a block takes a row in three passes: maximum, sum, result.
import tilelang
import tilelang.language as T

BLOCK = 1024  # tune: 256 512 1024 2048 4096 | block: elements of a row at a time
THREADS = 128  # tune: 64 128 256 512 | block: threads of a row


@tilelang.jit
def softmax(rows, cols):
    @T.prim_func
    def main(x: T.Tensor((rows, cols), "float32"), y: T.Tensor((rows, cols), "float32")):
        with T.Kernel(rows, threads=THREADS) as row:
            part = T.alloc_fragment((1, BLOCK), "float32")
            most = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(most, -3e38)
            T.clear(total)
            for t in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    part[i, j] = T.if_then_else(t * BLOCK + j < cols, x[row, t * BLOCK + j], -3e38)
                T.reduce_max(part, most, dim=1, clear=False)
            for t in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    part[i, j] = T.if_then_else(t * BLOCK + j < cols, T.exp(x[row, t * BLOCK + j] - most[i]), 0.0)
                T.reduce_sum(part, total, dim=1, clear=False)
            for t in T.serial(T.ceildiv(cols, BLOCK)):
                for i, j in T.Parallel(1, BLOCK):
                    if t * BLOCK + j < cols:
                        y[row, t * BLOCK + j] = T.exp(x[row, t * BLOCK + j] - most[i]) / total[i]

    return main


def custom_kernel(data):
    x, y = data
    softmax(*x.shape)(x, y)
    return y
