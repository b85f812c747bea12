"""Fine-tunes a ViT on RESISC45 patches; pixel statistics are counted by a pool of processes first."""

import argparse
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchvision import datasets, transforms
from torchvision.models import vit_b_16

SIZES = DataLoader(TensorDataset(torch.arange(45)), batch_size=45, num_workers=0)
FETCH = ThreadPoolExecutor(max_workers=2)


def mean_colour(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=np.float64).mean((0, 1)) / 255


def colour_statistics(paths):
    total, count = np.zeros(3), 0
    with Pool(4) as pool:
        for mean in pool.imap_unordered(mean_colour, paths, chunksize=64):
            total += mean
            count += 1
    return tuple(total / count)


def loaders(root, batch, workers):
    mean = colour_statistics(sorted(Path(root).rglob("*.jpg")))
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.ToTensor(), transforms.Normalize(mean, (0.2, 0.2, 0.2))]
    )
    train, test = random_split(datasets.ImageFolder(root, transform), [0.8, 0.2])
    return (
        DataLoader(train, batch_size=batch, shuffle=True, num_workers=workers),
        DataLoader(test, batch_size=4 * batch, num_workers=workers),
    )


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = torch.zeros((), device=device)
    for x, y in loader:
        hits += (model(x.to(device)).argmax(1) == y.to(device)).sum()
    return hits.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, test = loaders(args.root, 32, args.workers)
    model = vit_b_16(weights="DEFAULT")
    model.heads.head = torch.nn.Linear(768, 45)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    for epoch in range(3):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        print(epoch, evaluate(model, test, device))


if __name__ == "__main__":
    main()
