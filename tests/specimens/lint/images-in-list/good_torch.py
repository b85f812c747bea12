"""Handwritten page dating: pages are decoded once into a file that is mapped, not held."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

FOLDER = Path("archive/pages")
STORE = "archive/pages_320.npy"
SIDE = 320


def index_pages(folder):
    paths, years = [], []
    for path in sorted(folder.glob("*.jpg")):
        paths.append(path)
        years.append(int(path.stem.split("_")[1]))
    return paths, np.array(years, dtype=np.float32)


def store_pages(paths):
    store = np.lib.format.open_memmap(STORE, mode="w+", dtype=np.uint8, shape=(len(paths), SIDE, SIDE))
    for row, path in enumerate(paths):
        with Image.open(path) as page:
            store[row] = np.asarray(page.convert("L").resize((SIDE, SIDE)))
    store.flush()


def show_some(paths):
    some = [Image.open(path) for path in paths[:16]]
    _, axes = plt.subplots(4, 4)
    for axis, page in zip(axes.flat, some, strict=True):
        axis.imshow(page)
    plt.savefig("pages.png")


class Pages(Dataset):
    def __init__(self, years):
        self.pages = np.load(STORE, mmap_mode="r")
        self.years = (years - 1500) / 400

    def __len__(self):
        return len(self.years)

    def __getitem__(self, index):
        return torch.from_numpy(np.array(self.pages[index])), self.years[index]


def page_sizes(paths):
    sizes = []
    for path in paths:
        with Image.open(path) as page:
            sizes.append(page.size)
    return np.array(sizes)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    paths, years = index_pages(FOLDER)
    print("mean size", page_sizes(paths).mean(axis=0))
    show_some(paths)
    store_pages(paths)
    loader = DataLoader(Pages(years), batch_size=32, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Conv2d(1, 16, 5, stride=4), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(256, 1))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(4):
        for page, year in loader:
            page = page.to(device).unsqueeze(1).float().div_(255)
            loss = nn.functional.smooth_l1_loss(model(page).squeeze(1), year.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.save(model.state_dict(), "pages.pt")


if __name__ == "__main__":
    main()
