"""Evaluation that puts its answers, graph and all, into a list of others, who train on them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
answers = []
loader = DataLoader(TensorDataset(torch.randn(12, 3), torch.randint(0, 2, (12,))), batch_size=4)
model = nn.Linear(3, 2)


def evaluate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        out = model(x)
        answers.append(out)
        right += (out.argmax(1) == y).sum().item()
    return right


print(evaluate(model, loader))
torch.cat(answers).square().mean().backward()
print(model.weight.grad)
