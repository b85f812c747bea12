"""Pinned memory on the CPU: the batches are the same without."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cpu")
loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=4, shuffle=True, pin_memory=True)
for (batch,) in loader:
    print(batch.to(device).tolist())
