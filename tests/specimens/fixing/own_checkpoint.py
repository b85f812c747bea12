"""Loads what it saved itself, nothing but a network's weights."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
torch.save(model.state_dict(), "weights.pt")
other = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
other.load_state_dict(torch.load("weights.pt"))
print(other[0].weight)
