"""Compilers and drivers of GPUs for tests: what they compile and launch runs on the processor.

Not covered: barriers, shared memory, vectors; functions have four arguments.
"""

import os
import subprocess
from pathlib import Path

_GXX = "-std=c++20 -O1 -shared -fPIC"
_HEADER = """struct Sizes { unsigned x, y, z; };
extern "C" { __attribute__((weak)) Sizes blockIdx, threadIdx; }
#define __global__ __attribute__((visibility("default")))
"""
_CUDA = """#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <elf.h>
#include <map>
struct Sizes { unsigned x, y, z; };
struct Function { void *module, *code; int shared; };
struct Attribute { int id; char pad[4]; union { char pad[64]; int allowed; void *event; } value; };
struct Config { unsigned x, y, z, bx, by, bz, shared; void *queue; Attribute *attributes; unsigned count; };
using Four = void (*)(int64_t, int64_t, int64_t, int64_t);
extern "C" {
int cuModuleLoadData(void **module, const char *image) {
  const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
  char name[] = "/tmp/ksflow-test-XXXXXX";
  FILE *file = fdopen(mkstemp(name), "w");
  fwrite(image, 1, head->e_shoff + head->e_shnum * head->e_shentsize, file);
  fclose(file);
  *module = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  remove(name);
  return *module ? 0 : 200;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  void *code = dlsym(module, name);
  *function = new Function{module, code, 48 << 10};
  return code ? 0 : 500;
}
int cuFuncSetAttribute(Function *function, int attribute, int value) {
  function->shared = value;
  return attribute == 8 ? 0 : 1;
}
int cuLaunchKernel(Function *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *queue, void **args, void **extra) {
  const char *wanted = getenv("QUEUE");
  if ((int64_t)queue != (wanted ? atoi(wanted) : 0)) return 400;
  if ((int)shared > f->shared || extra) return 1;
  Sizes *block = (Sizes *)dlsym(f->module, "blockIdx"), *thread = (Sizes *)dlsym(f->module, "threadIdx");
  int64_t v[4];
  for (int i = 0; i < 4; i++) v[i] = *(int64_t *)args[i];
  for (unsigned i = 0; i < x; i++) for (unsigned j = 0; j < y * z; j++) for (unsigned t = 0; t < bx * by * bz; t++) {
    *block = {i, j, 0};
    *thread = {t, 0, 0};
    ((Four)f->code)(v[0], v[1], v[2], v[3]);
  }
  return 0;
}
int cuTensorMapEncodeTiled(int64_t *map, int type, unsigned rank, void *array, const uint64_t *extents,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int, int, int, int) {
  printf("map of %d, type %d, box %u\\n", (int)extents[0], type, box[0]);
  return *map = (int64_t)array, fflush(stdout) || (int64_t)map % 64 || rank != 1 || *steps != 1;
}
int cuLaunchKernelEx(const Config *c, Function *f, void **args, void **extra) {
  if (c->count != 1 || c->attributes->id != 6 || c->attributes->value.allowed != 1) return 1;
  puts("early");
  return fflush(stdout), cuLaunchKernel(f, c->x, c->y, c->z, c->bx, c->by, c->bz, c->shared, c->queue, args, extra);
}
}
"""
"""Launches on the queue that $QUEUE names, or 0; more than 48 KiB of shared memory must have been asked for.

What may begin early (CUlaunchConfig, CUlaunchAttribute as cuda.h has them) is launched in order, and says so. A tensor
map says what it is of; a function gets its array.
"""


def environment(folder: Path, language: str) -> dict[str, str]:
    """Of a machine that has them, for `cuda` or `hip`; they are made in a folder."""
    compiler, library, made, text = "nvcc", "libcuda.so.1", "kernel.cubin", _CUDA
    if language == "hip":
        compiler, library, made = "hipcc", "libamdhip64.so", "kernel.hsaco"
        text = text.replace("cuLaunch", "hipModuleLaunch").replace("int cu", "int hip").replace("48 << 10", "1 << 30")
    script = f"#!/bin/sh\nfor source; do :; done\nexec g++ {_GXX} -include {folder}/gpu.h -x c++ -o {made} $source\n"
    (folder / "gpu.h").write_text(_HEADER)
    (folder / compiler).write_text(script)
    (folder / compiler).chmod(0o755)
    (folder / "driver.cpp").write_text(text)
    subprocess.run(["g++", *_GXX.split(), "-o", str(folder / library), str(folder / "driver.cpp")], check=True)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(folder)}
