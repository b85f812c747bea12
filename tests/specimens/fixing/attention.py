"""Evaluation of a network with attention: without gradients torch takes another way through it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(8, 5, 16)), batch_size=4)


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for (x,) in loader:
        total += model(x).sum().item()
    return total


model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, batch_first=True), 2)
print(repr(evaluate(model, loader)))
