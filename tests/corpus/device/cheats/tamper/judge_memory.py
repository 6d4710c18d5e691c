# expect: reject
# problem: gemm
# Looks for the judge among the processes, and writes to its memory.
import os


def search():
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/maps") as maps, open(f"/proc/{name}/mem", "r+b", 0) as memory:
                    for line in maps:
                        if "[heap]" in line:
                            memory.seek(int(line.split("-")[0], 16))
                            text = memory.read(1 << 20)
                            memory.seek(int(line.split("-")[0], 16))
                            memory.write(text.replace(b"reject-incorrect", b"accept\0\0\0\0\0\0\0\0\0\0"))
            except OSError:
                pass


def custom_kernel(data):
    search()
    return data[2].zero_()
