# expect: reject
# problem: matmul
# Sends descriptors along with its answers until the judge has too many of them.
import os
import socket


def custom_kernel(data):
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    for fd in range(64):
        try:
            with socket.socket(fileno=os.dup(fd)) as line:
                line.setblocking(False)
                for _ in range(50):
                    socket.send_fds(line, [b"done"], held)
        except OSError:
            pass
    return data[2].zero_()
