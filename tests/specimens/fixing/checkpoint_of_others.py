"""Loads weights that something else wrote, through an object that is not torch's."""

import pickle
from fractions import Fraction

import torch
from torch import nn


class Averaged:
    def __init__(self, model):
        self.model = model

    def load_state_dict(self, state):
        print("share", state.pop("share"))
        self.model.load_state_dict(state)


def write(path):
    torch.save({**model.state_dict(), "share": Fraction(1, 3)}, path)


torch.manual_seed(0)
model = nn.Linear(3, 2)
write("weights.pt")
Averaged(model).load_state_dict(torch.load("weights.pt"))
print(model.weight, len(pickle.dumps(1)))
