"""Roads on an orthophoto: windows are gathered into batches, an ensemble is averaged, tiles are written one by one."""

import argparse
from pathlib import Path

import numpy as np
import rasterio
import segmentation_models_pytorch as smp
import torch
from PIL import Image
from rasterio.windows import Window

TILE = 512
BATCH = 16


def load_model(weights, device):
    model = smp.Unet("resnet34", encoder_weights=None, classes=1)
    model.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
    return model.to(device).eval()


def corners(height, width):
    return [(top, left) for top in range(0, height - TILE + 1, TILE) for left in range(0, width - TILE + 1, TILE)]


def read_tile(scene, top, left):
    pixels = scene.read((1, 2, 3), window=Window(left, top, TILE, TILE))
    return torch.from_numpy(pixels.astype("float32") / 255.0)


@torch.inference_mode()
def segment(models, scene, device):
    places = corners(scene.height, scene.width)
    score = np.zeros((scene.height, scene.width), dtype=np.float32)
    for start in range(0, len(places), BATCH):
        part = places[start : start + BATCH]
        tiles = torch.stack([read_tile(scene, top, left) for top, left in part]).to(device)
        prob = torch.zeros(len(part), TILE, TILE, device=device)
        for model in models:
            prob += model(tiles).sigmoid()[:, 0] / len(models)
        for (top, left), tile in zip(part, prob.cpu().numpy()):
            score[top : top + TILE, left : left + TILE] = tile
    return score


@torch.inference_mode()
def overview(model, scene, device):
    small = scene.read((1, 2, 3), out_shape=(3, TILE, TILE)).astype("float32") / 255.0
    return model(torch.from_numpy(small).unsqueeze(0).to(device)).sigmoid()[0, 0].cpu().numpy()


def write_tiles(score, folder):
    for top, left in corners(*score.shape):
        tile = score[top : top + TILE, left : left + TILE]
        Image.fromarray((255 * tile).astype("uint8")).save(folder / f"{top}_{left}.png")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scene")
    parser.add_argument("weights", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("roads"))
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = [load_model(weights, device) for weights in args.weights]
    args.out.mkdir(exist_ok=True)
    with rasterio.open(args.scene) as scene:
        score = segment(models, scene, device)
        np.save(args.out / "overview.npy", overview(models[0], scene, device))
    write_tiles(score, args.out)


if __name__ == "__main__":
    main()
