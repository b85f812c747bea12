"""Step length from phone inertial windows; the study's laptops are all Apple silicon."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "mps"


class StepNet(nn.Module):
    def __init__(self, channels=6, hidden=96):
        super().__init__()
        self.rnn = nn.GRU(channels, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.out = nn.Linear(hidden, 1)

    def forward(self, window):
        states, _ = self.rnn(window)
        return self.out(states[:, -1]).squeeze(1)


def walkers(split):
    windows = torch.from_numpy(np.load(f"walk_{split}.npy")).float()
    metres = torch.from_numpy(np.load(f"walk_{split}_m.npy")).float()
    return TensorDataset(windows, metres)


def run(epochs=4):
    loader = DataLoader(walkers("train"), batch_size=128, shuffle=True)
    model = StepNet().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        model.train()
        for windows, metres in loader:
            windows = windows.to(DEVICE, non_blocking=True)
            loss = nn.functional.mse_loss(model(windows), metres.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return model


@torch.no_grad()
def test(model):
    model.eval()
    off = []
    for windows, metres in DataLoader(walkers("test"), batch_size=512):
        off.append((model(windows.to(DEVICE)).cpu() - metres).abs())
    return torch.cat(off).mean().item()


if __name__ == "__main__":
    net = run()
    print(f"mean error {100 * test(net):.1f} cm")
    torch.save(net.state_dict(), "step_net.pt")
