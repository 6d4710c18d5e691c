// launch: norm_rows [rows] [256] (x, w, out, rows, cols)
#include "work.cuh"
