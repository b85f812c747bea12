"""Evaluation that prints a tensor with its graph."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(12, 3), torch.randint(0, 2, (12,))), batch_size=4)


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        print(loss)
        total += loss.item()
    return total


print(f"{evaluate(nn.Linear(3, 2), loader):.5f}")
