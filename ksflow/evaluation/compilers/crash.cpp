// Calls a kernel once on a file's inputs. STRIDES, TYPES and VALUES are defined above: the kernel's arguments.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
extern "C" void custom_kernel();
static int64_t strides[] = {STRIDES};
static void *tensor(FILE *file, long offset, long bytes, bool out) {
  void *made = nullptr;
  if (posix_memalign(&made, 256, bytes)) exit(1);
  memset(made, 255, bytes);
  if (!out && (fseek(file, offset, SEEK_SET) || fread(made, 1, bytes, file) != size_t(bytes))) exit(1);
  return made;
}
int main() {
  FILE *file = fopen("inputs.bin", "rb");
  auto call = reinterpret_cast<void (*)(TYPES)>(custom_kernel);
  call(VALUES);
}
