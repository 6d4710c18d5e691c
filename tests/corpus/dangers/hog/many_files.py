# expect: harmless
# problem: gauss
# A file system has only so many inodes.
import os


def custom_kernel(data):
    for place in ("/tmp", os.getcwd()):
        try:
            os.makedirs(f"{place}/@MARK@")
            for number in range(5000):
                open(f"{place}/@MARK@/{number}", "w").close()
        except OSError:
            pass
    return data[2]
