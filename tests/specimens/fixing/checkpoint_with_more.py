"""Loads what it saved itself, in a state that holds more than tensors."""

from fractions import Fraction

import torch
from torch import nn


class Net(nn.Linear):
    def get_extra_state(self):
        return Fraction(1, 3)

    def set_extra_state(self, state):
        print("share", state)


torch.manual_seed(0)
model = Net(3, 2)
torch.save(model.state_dict(), "weights.pt")
model.load_state_dict(torch.load("weights.pt"))
print(model.weight)
