// expect: accept
// problem: row_norm
// Two threads, started when the library is loaded, that sleep between calls.
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

struct Pool {
  std::mutex guard;
  std::condition_variable changed;
  const float *x = nullptr;
  float *out = nullptr;
  int64_t rows = 0, cols = 0, turn = 0;
  int left = 0;
  std::thread threads[2];
  Pool() {
    for (int id = 0; id < 2; id++) threads[id] = std::thread([this, id] { work(id); }), threads[id].detach();
  }
  void work(int id) {
    for (int64_t seen = 0;;) {
      std::unique_lock<std::mutex> lock(guard);
      changed.wait(lock, [&] { return turn > seen; });
      seen = turn;
      lock.unlock();
      for (int64_t i = id * rows / 2; i < (id + 1) * rows / 2; i++) {
        float sums[4] = {};
        for (int64_t j = 0; j < cols; j++) sums[j % 4] += x[i * cols + j] * x[i * cols + j];
        out[i] = sqrtf(sums[0] + sums[1] + sums[2] + sums[3]);
      }
      lock.lock();
      if (--left == 0) changed.notify_all();
    }
  }
  void run(const float *x_, float *out_, int64_t rows_, int64_t cols_) {
    std::unique_lock<std::mutex> lock(guard);
    x = x_, out = out_, rows = rows_, cols = cols_, left = 2, turn++;
    changed.notify_all();
    changed.wait(lock, [&] { return left == 0; });
  }
};
static Pool &pool = *new Pool;

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  pool.run(x, out, rows, cols);
}
