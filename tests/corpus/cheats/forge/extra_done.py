# expect: reject
# problem: gauss
# Puts answers in advance into every socket, so that later questions seem to be answered at once.
import os
import socket


def custom_kernel(data):
    for fd in range(256):
        try:
            with socket.socket(fileno=os.dup(fd)) as line:
                for _ in range(3):
                    line.send(b"done", socket.MSG_DONTWAIT)
        except OSError:
            pass
    return data[2].zero_()
