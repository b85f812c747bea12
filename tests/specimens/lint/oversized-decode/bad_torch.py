"""Building footprints in aerial mosaics, learned from 256-pixel tiles."""

import json
import os

import numpy as np
import torch
from PIL import Image
from segmentation_models_pytorch import Unet
from torch import nn
from torch.utils.data import DataLoader, Dataset

Image.MAX_IMAGE_PIXELS = None
TILE = 256


class MosaicTiles(Dataset):
    """One item per tile; the index file holds (mosaic, row, column)."""

    def __init__(self, index_file, folder):
        with open(index_file) as handle:
            self.index = json.load(handle)
        self.folder = folder

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        mosaic, row, column = self.index[i]
        x, y = column * TILE, row * TILE
        image = Image.open(os.path.join(self.folder, mosaic + ".png")).convert("RGB")
        image = np.asarray(image.crop((x, y, x + TILE, y + TILE)), dtype=np.float32) / 255.0
        mask = np.load(os.path.join(self.folder, "masks", f"{mosaic}_{row}_{column}.npy"))
        return torch.from_numpy(image).permute(2, 0, 1), torch.from_numpy(mask).float().unsqueeze(0)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(MosaicTiles("tiles.json", "mosaics"), batch_size=16, shuffle=True, num_workers=4)
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


if __name__ == "__main__":
    main()
