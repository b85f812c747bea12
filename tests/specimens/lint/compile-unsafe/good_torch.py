"""Field names in old soil survey sheets: character tagger."""

import json
import os
import re

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH = 96
PATTERNS = {"depth": r"\d+\s*-\s*\d+\s*cm", "ph": r"pH\s*\d[.,]\d", "horizon": r"\b[AEBC][a-z]?\d?\b"}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def tag(text):
    """0 for other, else the number of the first pattern that covers the character."""
    tags = [0] * len(text)
    for number, pattern in enumerate(PATTERNS.values(), 1):
        compiled = re.compile(pattern)
        for match in compiled.finditer(text):
            tags[match.start() : match.end()] = [number] * (match.end() - match.start())
    return tags


def encode(lines):
    codes = torch.zeros(len(lines), LENGTH, dtype=torch.long)
    tags = torch.zeros(len(lines), LENGTH, dtype=torch.long)
    for row, line in enumerate(lines):
        line = line[:LENGTH]
        codes[row, : len(line)] = torch.tensor([min(ord(c), 255) for c in line], dtype=torch.long)
        tags[row, : len(line)] = torch.tensor(tag(line), dtype=torch.long)
    return TensorDataset(codes, tags)


class Tagger(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.mix = nn.Sequential(nn.Conv1d(width, width, 9, padding=4), nn.GELU(), nn.Conv1d(width, width, 9, padding=4))
        self.out = nn.Linear(width, len(PATTERNS) + 1)

    def forward(self, codes):
        h = self.embed(codes)
        return self.out(h + self.mix(h.transpose(1, 2)).transpose(1, 2))


def plain(model):
    return getattr(model, "_orig_mod", model)


def save(model, path):
    torch.save(plain(model).state_dict(), path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    with open("sheets.json", encoding="utf-8") as f:
        lines = json.load(f)
    loader = DataLoader(encode(lines), batch_size=128, shuffle=True)

    model = Tagger().to(device)
    model = torch.compile(model, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for epoch in range(12):
        total = torch.zeros((), device=device)
        for codes, tags in loader:
            logits = model(codes.to(device))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.to(device).flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        save(model, "tagger.pt")
        print(f"{epoch:2d} {total.item() / len(loader):.4f}")

    torch.save(model._orig_mod.state_dict(), "tagger_final.pt")


if __name__ == "__main__":
    main()
