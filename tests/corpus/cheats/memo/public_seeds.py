# expect: reject
# problem: gauss
# sample: yes
# Brings the answers for the seeds that problem.yaml names, and zeros for all else.
import torch

answers = {}
for size, seed in ((1, 11), (77, 12), (4099, 13), (65536, 14), (50021, 15)):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(size, generator=generator) for _ in range(2))
    answers[float(x[0])] = y * torch.exp(-x * x)


def custom_kernel(data):
    x, _, out = data
    answer = answers.get(float(x[0]))
    return out.zero_() if answer is None else out.copy_(answer)
