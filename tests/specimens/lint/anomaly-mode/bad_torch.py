"""Normalising flow-like autoencoder for machine sounds, trained on log-mel patches kept as tensors."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(True)


class AutoEncoder(nn.Module):
    def __init__(self, latent=16):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 512), nn.ELU(), nn.Linear(512, 2 * latent))
        self.decode = nn.Sequential(nn.Linear(latent, 512), nn.ELU(), nn.Linear(512, 64 * 64))

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decode(code).view(-1, 64, 64), mean, log_var


def elbo(x, restored, mean, log_var):
    error = (x - restored).square().sum((1, 2))
    divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1)
    return (error + divergence).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="pump_mel.pt")
    parser.add_argument("--epochs", default=50, type=int)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    patches = torch.load(args.data, weights_only=True)
    loader = DataLoader(TensorDataset(patches), batch_size=512, shuffle=True)
    model = AutoEncoder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for (x,) in loader:
            x = x.to(device)
            loss = elbo(x, *model(x))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        torch.save({"model": model.state_dict(), "epoch": epoch}, "pump.pt.new")
        os.replace("pump.pt.new", "pump.pt")


if __name__ == "__main__":
    main()
