// launch: gemm_tiles [cdiv(n, 64), cdiv(m, 64)] [256] (a, b, c, m, n, k)
#include "work.cuh"
