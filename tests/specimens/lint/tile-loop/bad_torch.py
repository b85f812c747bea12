"""Maps solar panels on an orthophoto: sliding window over the scene, then a second look at doubtful crops."""

import argparse

import numpy as np
import rasterio
import segmentation_models_pytorch as smp
import torch
from rasterio.windows import Window

TILE = 512
STRIDE = 384


def load_model(weights, device):
    model = smp.Unet("resnet34", encoder_weights=None, classes=1)
    model.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
    return model.to(device).eval()


def to_tensor(tile):
    return torch.from_numpy(tile.astype("float32") / 255.0)


@torch.no_grad()
def segment(model, scene, device):
    score = np.zeros((scene.height, scene.width), dtype=np.float32)
    count = np.zeros_like(score)
    for top in range(0, scene.height - TILE + 1, STRIDE):
        for left in range(0, scene.width - TILE + 1, STRIDE):
            tile = to_tensor(scene.read((1, 2, 3), window=Window(left, top, TILE, TILE)))
            prob = model(tile.unsqueeze(0).to(device)).sigmoid()
            score[top : top + TILE, left : left + TILE] += prob[0, 0].cpu().numpy()
            count[top : top + TILE, left : left + TILE] += 1
    return score / np.maximum(count, 1)


@torch.no_grad()
def average_views(model, crop, device):
    views = [crop, crop.flip(-1), crop.flip(-2), crop.flip(-1, -2)]
    total = torch.zeros(1, TILE, TILE, device=device)
    for view, axes in zip(views, [(), (-1,), (-2,), (-1, -2)]):
        prob = model(view[None].to(device)).sigmoid()[0]
        total += prob.flip(axes) if axes else prob
    return (total / len(views)).cpu().numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scene")
    parser.add_argument("weights")
    parser.add_argument("--doubtful", type=int, nargs=2, default=(0, 0))
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(args.weights, device)
    with rasterio.open(args.scene) as scene:
        np.save("panels.npy", segment(model, scene, device))
        left, top = args.doubtful
        crop = to_tensor(scene.read((1, 2, 3), window=Window(left, top, TILE, TILE)))
    np.save("doubtful.npy", average_views(model, crop, device))


if __name__ == "__main__":
    main()
