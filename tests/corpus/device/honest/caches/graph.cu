// expect: accept
// problem: norm
// A graph for each set of addresses, captured at their first call, whose two halves have no order between them.
#include "work.cuh"

#include <map>
#include <tuple>

static void work(const float *x, const float *w, float *out, int64_t rows, int64_t cols, cudaStream_t here,
                 cudaStream_t side, cudaEvent_t *events) {
  int64_t there = rows / 2, at = (rows - there) * cols;
  cudaEventRecord(events[0], here);
  cudaStreamWaitEvent(side, events[0]);
  if (there) norm_rows<<<there, 256, 0, side>>>(x + at, w, out + at, there, cols);
  norm_rows<<<rows - there, 256, 0, here>>>(x, w, out, rows - there, cols);
  cudaEventRecord(events[1], side);
  cudaStreamWaitEvent(here, events[1]);
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static std::map<std::tuple<const float *, float *, int64_t, int64_t>, cudaGraphExec_t> graphs;
  static cudaStream_t streams[2];
  static cudaEvent_t events[2];
  if (!streams[0]) {
    for (auto &one : streams) cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    for (auto &one : events) cudaEventCreateWithFlags(&one, cudaEventDisableTiming);
  }
  auto &graph = graphs[{x, out, rows, cols}];
  if (!graph) {
    cudaGraph_t captured;
    cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal);
    work(x, w, out, rows, cols, streams[0], streams[1], events);
    cudaStreamEndCapture(streams[0], &captured);
    cudaGraphInstantiate(&graph, captured, 0);
    cudaGraphDestroy(captured);
  }
  cudaGraphLaunch(graph, (cudaStream_t)stream);
}
