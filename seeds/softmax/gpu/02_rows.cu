// Softmax of rows: a short row is a warp's, a longer one a block's. One pass takes the maximum and the sum together, another
// writes; what is read first can be kept in shared memory.
// launch: softmax [cdiv(rows, THREADS // 32 if cols <= WARP else 1)] [THREADS] shared (THREADS // 32 * WARP if cols <= WARP else cols if cols <= 57344 else 0) * 4 * KEEP (x, y, rows, cols)
// require: THREADS // 32 * WARP <= 57344
constexpr int THREADS = 256;  // tune: 128 256 512 1024 | block: threads
constexpr int WARP = 1024;    // tune: 256 512 1024 2048 | block: a row of at most so many elements is one warp's
constexpr int KEEP = 0;       // tune: 0 1 | memory: the row is read twice, or kept in shared memory
constexpr int FAST = 0;       // tune: 0 1 | precision: expf, or the device's own exponential
constexpr int UNROLL = 2;     // tune: 1 2 4 8 | unroll: steps in flight

__device__ float power(float x) { return FAST ? __expf(x) : expf(x); }

struct Sum {
  float most = -3e38f, total = 0;  // a finite start, because -inf less itself is no number

  __device__ void add(float value) {
    if (value > most) total *= power(most - value), most = value;
    total += power(value - most);
  }
  __device__ void join(Sum other) {
    float larger = fmaxf(most, other.most);
    total = total * power(most - larger) + other.total * power(other.most - larger);
    most = larger;
  }
};

__device__ void each(float value, Sum &sum) { sum.add(value); }
__device__ void each(float4 value, Sum &sum) {
  float larger = fmaxf(fmaxf(value.x, value.y), fmaxf(value.z, value.w));
  if (larger > sum.most) sum.total *= power(sum.most - larger), sum.most = larger;
  sum.total += power(value.x - sum.most) + power(value.y - sum.most) + power(value.z - sum.most) + power(value.w - sum.most);
}
__device__ float scaled(float value, Sum sum) { return power(value - sum.most) / sum.total; }
__device__ float4 scaled(float4 v, Sum sum) {
  return {scaled(v.x, sum), scaled(v.y, sum), scaled(v.z, sum), scaled(v.w, sum)};
}

// The row's n values of type V, by threads `own` to the last of `threads`, a warp or the block.
template <class V>
__device__ void row(const V *x, V *y, V *kept, int n, int own, int threads) {
  Sum sum;
#pragma unroll UNROLL
  for (int j = own; j < n; j += threads) {
    V value = x[j];
    if (kept) kept[j] = value;
    each(value, sum);
  }
  for (int step = 16; step; step /= 2)
    sum.join({__shfl_xor_sync(~0u, sum.most, step), __shfl_xor_sync(~0u, sum.total, step)});
  if (threads > 32) {
    __shared__ Sum of[32];
    if (own % 32 == 0) of[own / 32] = sum;
    __syncthreads();
    sum = of[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) sum.join(of[warp]);
  }
#pragma unroll UNROLL
  for (int j = own; j < n; j += threads) y[j] = scaled(kept ? kept[j] : x[j], sum);
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax(const float *x, float *y, int rows, int cols) {
  extern __shared__ float4 room[];
  bool alone = cols <= WARP;
  int warp = threadIdx.x / 32, threads = alone ? 32 : THREADS, own = threadIdx.x % threads;
  long i = alone ? (long)blockIdx.x * (THREADS / 32) + warp : blockIdx.x;
  if (i >= rows) return;
  float *kept = KEEP && (alone || cols <= 57344) ? (float *)room + (alone ? warp * WARP : 0) : nullptr;
  const float *from = x + i * cols;
  float *to = y + i * cols;
  if (cols % 4)
    row(from, to, kept, cols, own, threads);
  else
    row((const float4 *)from, (float4 *)to, (float4 *)kept, cols / 4, own, threads);
}
