// expect: contained
// problem: gauss
// Aborts in a static constructor, before the harness has said a word.
#include <cstdint>
#include <cstdlib>

static int first = (abort(), 0);

extern "C" void custom_kernel(const float *, const float *, float *out, int64_t, const int64_t *) { out[0] = first; }
