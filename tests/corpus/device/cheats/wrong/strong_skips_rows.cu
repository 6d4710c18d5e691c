// expect: reject
// problem: norm
// launch: norm_rows [rows - rows // 64] [256] (x, w, out, rows - rows // 64, cols)
// Its launch line leaves out the last rows where there are many.
#include "work.cuh"
