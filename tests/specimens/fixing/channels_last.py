"""A view of a tensor in channels_last that happens to work, having one channel."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 1, 3), nn.ReLU())
        self.head = nn.Linear(36, 2)

    def forward(self, x):
        x = self.features(x)
        return self.head(x.view(x.size(0), -1))


torch.manual_seed(0)
model = Net().to(memory_format=torch.channels_last)
print(model(torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)))
