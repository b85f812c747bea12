"""Pinned memory in settings that are shown as well."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cpu")
settings = {"batch_size": 4, "shuffle": True, "pin_memory": True}
print(settings)
loader = DataLoader(TensorDataset(torch.arange(10)), **settings)
for (batch,) in loader:
    print(batch.to(device).tolist(), loader.pin_memory)
