"""Variational autoencoder for bearing vibrations; gradients are traced for one batch only when asked for."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(False)


class AutoEncoder(nn.Module):
    def __init__(self, length=1024, latent=12):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(length, 256), nn.SiLU(), nn.Linear(256, 2 * latent))
        self.decode = nn.Sequential(nn.Linear(latent, 256), nn.SiLU(), nn.Linear(256, length))

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decode(code), mean, log_var


def elbo(x, restored, mean, log_var):
    error = (x - restored).square().sum(1)
    divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1)
    return (error + divergence).mean()


def detect_anomaly(model, x, limit):
    """Which signals the trained model restores badly: broken bearings, not broken gradients."""
    with torch.no_grad():
        restored, _, _ = model(x)
    return (x - restored).square().mean(1) > limit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="bearings.pt")
    parser.add_argument("--epochs", default=40, type=int)
    parser.add_argument("--debug", action="store_true")
    args = parser.parse_args()
    if args.debug:
        torch.autograd.set_detect_anomaly(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    signals = torch.load(args.data, weights_only=True)
    loader = DataLoader(TensorDataset(signals), batch_size=512, shuffle=True)
    model = AutoEncoder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for (x,) in loader:
            x = x.to(device)
            loss = elbo(x, *model(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "epoch": epoch}, "bearings.ckpt.new")
        os.replace("bearings.ckpt.new", "bearings.ckpt")

    worst = detect_anomaly(model, signals[:1000].to(device), limit=0.5)
    print("suspicious signals:", worst.nonzero().flatten().tolist())


if __name__ == "__main__":
    main()
