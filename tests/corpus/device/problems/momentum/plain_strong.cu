// launch: momentum [(n + 255) // 256] [256] (g, m, n)
#include "work.cuh"
