"""Apply the shared weed segmentation weights to stored orthophoto tiles."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Segmenter(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        )
        self.decoder = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(64, classes, 1))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def load_model(path, device):
    checkpoint = torch.load(path, map_location=device)
    model = Segmenter(checkpoint["classes"])
    model.load_state_dict(checkpoint["model"])
    return model.to(device).eval()


def load_palette(path):
    palette = torch.load(path, weights_only=False)
    return np.asarray(palette["colours"], dtype=np.uint8)


@torch.inference_mode()
def segment(model, loader, device):
    parts = []
    for (pixels,) in loader:
        logits = model(pixels.to(device).float() / 255)
        parts.append(logits.argmax(1).to(torch.uint8).cpu())
    return torch.cat(parts).numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weights")
    parser.add_argument("pixels", help="uint8 array, N x 3 x 256 x 256")
    parser.add_argument("--palette", default="palette.pt")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(args.weights, device)
    pixels = torch.from_numpy(np.load(args.pixels))
    classes = segment(model, DataLoader(TensorDataset(pixels), batch_size=64), device)
    np.save("weeds.npy", classes)
    np.save("weeds_rgb.npy", load_palette(args.palette)[classes])


if __name__ == "__main__":
    main()
