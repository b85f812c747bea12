"""Handwritten page dating: the year from the whole page."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FOLDER = Path("archive/pages")
SIDE = 320


def load_pages(folder):
    pages, years = [], []
    for path in sorted(folder.glob("*.jpg")):
        page = Image.open(path).convert("L").resize((SIDE, SIDE))
        pages.append(np.asarray(page))
        years.append(int(path.stem.split("_")[1]))
    return np.array(pages), np.array(years, dtype=np.float32)


class PageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=4), nn.ReLU(), nn.AdaptiveMaxPool2d(4)
        )
        self.year = nn.Linear(512, 1)

    def forward(self, x):
        return self.year(self.convolutions(x).flatten(1)).squeeze(1)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pages, years = load_pages(FOLDER)
    data = TensorDataset(torch.from_numpy(pages), torch.from_numpy((years - 1500) / 400))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = PageEncoder().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        total = torch.zeros((), device=device)
        for page, year in loader:
            page = page.to(device).unsqueeze(1).float().div_(255)
            loss = nn.functional.smooth_l1_loss(model(page), year.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"{epoch}: {total.item() / len(loader):.4f}")
    torch.save(model.state_dict(), "pages.pt")


if __name__ == "__main__":
    main()
