# expect: reject
# problem: gauss
# Returns an alias of an input that has the right shape and type.


def custom_kernel(data):
    return data[1]
