# expect: reject
# problem: momentum
# Returns the right tensor and leaves the caller's as it was.
def custom_kernel(data):
    g, m = data
    return 0.9 * m + g
