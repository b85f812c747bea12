"""Cuts satellite scenes into chips before training a land-cover network."""

import argparse
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import rasterio
import torch
from joblib import Parallel, delayed
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHIP = 128


def cut_scene(path):
    """Scenes differ much in size and in cloud cover."""
    with rasterio.open(path) as source:
        pixels = source.read([1, 2, 3, 4])
    kept = 0
    for top in range(0, pixels.shape[1] - CHIP + 1, CHIP):
        for left in range(0, pixels.shape[2] - CHIP + 1, CHIP):
            chip = pixels[:, top : top + CHIP, left : left + CHIP]
            if (chip == 0).mean() < 0.2:
                np.save(f"chips/{Path(path).stem}_{top}_{left}.npy", chip)
                kept += 1
    return kept


def cloud_share(path):
    with rasterio.open(path) as source:
        return float((source.read(1) > 9000).mean())


class Chips(Dataset):
    def __init__(self, folder):
        self.paths = sorted(map(str, Path(folder).glob("*.npy")))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.from_numpy(np.load(self.paths[index]).astype(np.float32) / 10000.0)


def train(epochs):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Chips("chips"), batch_size=64, shuffle=True, num_workers=4)
    model = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 4, 3, padding=1)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        for chips in loader:
            chips = chips.to(device)
            loss = nn.functional.mse_loss(model(chips + 0.05 * torch.randn_like(chips)), chips)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.save(model.state_dict(), "denoiser.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenes", type=Path)
    parser.add_argument("--jobs", type=int, default=8)
    args = parser.parse_args()
    scenes = sorted(args.scenes.glob("*.tif"))
    with mp.Pool(args.jobs) as pool:
        counts = list(pool.imap_unordered(cut_scene, scenes))
        clouds = pool.map(cloud_share, scenes, chunksize=1)
    with ProcessPoolExecutor(args.jobs) as executor:
        late = [executor.submit(cut_scene, path) for path in sorted(args.scenes.glob("late/*.tif"))]
        counts += [future.result() for future in as_completed(late)]
        counts += executor.map(cut_scene, sorted(args.scenes.glob("early/*.tif")))
    counts += Parallel(n_jobs=args.jobs)(delayed(cut_scene)(path) for path in args.scenes.glob("extra/*.tif"))
    print(sum(counts), "chips, mean cloud", np.mean(clouds))
    train(epochs=3)


if __name__ == "__main__":
    main()
