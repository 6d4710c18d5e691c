# expect: reject
# problem: gemm
# Answers the judge itself, on every socket it has, that all is done.
import os
import socket
import stat


def answer():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as judge:
                    for word in (b"ok" + bytes(8), b"ready"):
                        judge.send(word, socket.MSG_DONTWAIT)
        except OSError:
            pass


def custom_kernel(data):
    answer()
    return data[2].zero_()
