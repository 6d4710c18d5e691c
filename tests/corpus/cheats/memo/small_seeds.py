# expect: reject
# problem: row_norm
# Has tried all small seeds before the first call, in the time that an import may take.
import torch

answers = {}
for rows, cols in ((1, 1), (5, 33), (16, 1000)):
    for seed in range(300):
        x = torch.randn((rows, cols), generator=torch.Generator().manual_seed(seed))
        answers[float(x[0, 0])] = torch.linalg.vector_norm(x, dim=1)


def custom_kernel(data):
    x, out = data
    answer = answers.get(float(x[0, 0]))
    return out.zero_() if answer is None else out.copy_(answer)
