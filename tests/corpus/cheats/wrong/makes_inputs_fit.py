# expect: reject
# problem: gauss
# Zeros are right for inputs of zeros.


def custom_kernel(data):
    data[1].zero_()
    return data[2].zero_()
