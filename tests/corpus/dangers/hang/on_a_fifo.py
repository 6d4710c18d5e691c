# expect: contained
# problem: gauss
# Opens a pipe that nobody will ever open for writing.
import os


def custom_kernel(data):
    os.mkfifo("@MARK@-fifo")
    return open("@MARK@-fifo").read()
