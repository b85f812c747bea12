"""Building footprints in aerial mosaics: only the window that is needed is read."""

import json
import os

import numpy as np
import rasterio
import torch
from PIL import Image
from rasterio.windows import Window
from segmentation_models_pytorch import Unet
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset
from torchvision import transforms as T

TILE = 256


class MosaicTiles(Dataset):
    def __init__(self, index_file, folder):
        with open(index_file) as handle:
            self.index = json.load(handle)
        self.folder = folder
        self.handles = {}

    def __len__(self):
        return len(self.index)

    def handle(self, mosaic):
        if mosaic not in self.handles:
            self.handles[mosaic] = rasterio.open(os.path.join(self.folder, mosaic + ".tif"))
        return self.handles[mosaic]

    def __getitem__(self, i):
        mosaic, row, column = self.index[i]
        window = Window(column * TILE, row * TILE, TILE, TILE)
        bands = self.handle(mosaic).read(window=window)
        image = bands[:3].astype(np.float32) / 255.0
        mask = np.load(os.path.join(self.folder, "masks", f"{mosaic}_{row}_{column}.npy"))
        return torch.from_numpy(image), torch.from_numpy(mask).float().unsqueeze(0)


class SketchTiles(Dataset):
    """Drawn plans, 288 pixels a side on disk: image on the left channel triple, outline in alpha."""

    def __init__(self, paths):
        self.paths = paths
        self.crop = T.RandomCrop(TILE)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        plan = np.array(Image.open(self.paths[i]).convert("RGBA"))
        tensor = self.crop(torch.from_numpy(plan).permute(2, 0, 1).float() / 255.0)
        return tensor[:3], tensor[3:]


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with open("plans.txt") as handle:
        plans = SketchTiles(handle.read().split())
    data = ConcatDataset([MosaicTiles("tiles.json", "mosaics"), plans])
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=4)
    model = Unet("resnet34", encoder_weights="imagenet", classes=1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(4):
        model.train()
        for images, masks in loader:
            images, masks = images.to(device), masks.to(device)
            loss = criterion(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"unet_{epoch}.pt")

    overview = np.array(Image.open("mosaics/overview.png"))[::8, ::8]
    Image.fromarray(overview).save("overview_small.png")


if __name__ == "__main__":
    main()
