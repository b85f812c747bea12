"""Anomaly scores of pump vibration spectra: a small autoencoder."""

import csv
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

EPOCHS = 25
LOG_EVERY = 100
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Spectra(Dataset):
    def __init__(self, path):
        self.spectra = np.log1p(np.load(path)).astype(np.float32)
        self.offset = float(self.spectra.mean())
        self.peak = self.spectra.max(0).tolist()

    def __len__(self):
        return len(self.spectra)

    def __getitem__(self, i):
        return self.spectra[i] - self.offset


def autoencoder(bins=1024):
    return nn.Sequential(nn.Linear(bins, 256), nn.GELU(), nn.Linear(256, 32), nn.Linear(32, 256), nn.GELU(), nn.Linear(256, bins))


def train_epoch(model, loader, optimizer):
    model.train()
    total = torch.zeros((), device=device)
    progress = tqdm(loader)
    for step, spectra in enumerate(progress):
        spectra = spectra.to(device, non_blocking=True)
        loss = nn.functional.mse_loss(model(spectra), spectra)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % LOG_EVERY == 0:
            progress.set_postfix(loss=f"{loss.item():.5f}")
    return total.item() / len(loader)


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    errors = []
    for spectra in loader:
        spectra = spectra.to(device)
        errors.append((model(spectra) - spectra).square().mean(1).cpu().numpy())
    return float(np.quantile(np.concatenate(errors), 0.99))


def main():
    train = DataLoader(Spectra("pump_train.npy"), batch_size=256, shuffle=True, num_workers=4, persistent_workers=True)
    valid = DataLoader(Spectra("pump_valid.npy"), batch_size=1024, num_workers=2)
    model = autoencoder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(EPOCHS):
        loss = train_epoch(model, train, optimizer)
        limit = evaluate(model, valid)
        print(f"epoch {epoch}: loss {loss:.5f}, 99 % of the healthy under {limit:.5f}")
        with open("pump_log.csv", "a", newline="") as log:
            csv.writer(log).writerow([epoch, loss, limit])
        torch.save({"model": model.state_dict(), "limit": limit}, "pump.pt.tmp")
        os.replace("pump.pt.tmp", "pump.pt")
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
