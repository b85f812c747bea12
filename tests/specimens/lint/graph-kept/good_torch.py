"""Depth and surface kind from underwater stereo pairs: several losses, summed, one backward."""

import csv
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 25


class TwoTasks(nn.Module):
    def __init__(self, width=32, kinds=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(6, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.depth = nn.ModuleList(nn.Conv2d(width, 1, 1) for _ in range(3))
        self.kind = nn.Linear(width, kinds)

    def forward(self, x):
        hidden = self.stem(x)
        return [layer(hidden) for layer in self.depth], self.kind(hidden.mean((2, 3)))


def step_loss(depths, logits, depth, kind):
    losses = []
    for scale, guess in enumerate(depths):
        losses.append(F.smooth_l1_loss(guess, depth) / 2**scale)
    loss = F.cross_entropy(logits, kind)
    for part in losses:
        loss += part
    return loss


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    guesses, kinds = [], []
    total = 0
    for pair, depth, kind in loader:
        depths, logits = model(pair.to(device))
        total += step_loss(depths, logits, depth.to(device), kind.to(device))
        guesses.append(logits)
        kinds.append(kind.to(device))
    return total.item() / len(loader), (torch.cat(guesses).argmax(1) == torch.cat(kinds)).float().mean().item()


def loader(path, batch, shuffle):
    pack = torch.load(path, weights_only=True)
    return DataLoader(TensorDataset(pack["pairs"], pack["depth"], pack["kind"]), batch_size=batch, shuffle=shuffle)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, valid = loader("train.pt", 32, True), loader("valid.pt", 128, False)
    model = TwoTasks().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        model.train()
        running, norms = torch.zeros((), device=device), []
        for pair, depth, kind in train:
            depths, logits = model(pair.to(device))
            loss = step_loss(depths, logits, depth.to(device), kind.to(device))
            loss += 1e-4 * sum(weight.square().sum() for weight in model.kind.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            norms.append(logits.detach().norm())
        error, accuracy = evaluate(model, valid, device)
        with open("stereo.csv", "a", newline="") as stream:
            csv.writer(stream).writerow([epoch, running.item() / len(train), torch.stack(norms).mean().item(), error, accuracy])
        torch.save({"model": model.state_dict(), "epoch": epoch}, "stereo.pt.part")
        os.replace("stereo.pt.part", "stereo.pt")


if __name__ == "__main__":
    main()
