"""Makes the small data that the ten notebooks read: `python make_data.py FOLDER`. Random pictures with the detail of photos."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

chance = np.random.default_rng(31)


def picture(width: int, height: int, hue: int = 0) -> np.ndarray:
    """A picture of soft shapes and fine grain, so that a JPEG of it is about as large as a photo's."""
    layers = np.zeros((height, width, 3))
    for cells, strength in ((4, 90), (16, 60), (64, 30)):
        noise = chance.random((cells, cells, 3)) * 255
        layers += (
            strength / 180 * np.asarray(Image.fromarray(noise.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC))
        )
    layers += chance.normal(0, 2, (height, width, 1))
    layers[..., hue % 3] *= 0.6 + 0.1 * (hue % 5)
    return layers.clip(0, 255).astype(np.uint8)


def class_folders(folder: Path, names: list[str], each: int, width: int, height: int, ending: str = ".jpg") -> None:
    for hue, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            Image.fromarray(picture(width, height, hue)).save(folder / name / f"{name}_{number:04}{ending}", quality=85)


def nuclei(folder: Path, count: int, side: int) -> None:
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    y, x = np.mgrid[:side, :side]
    for number in range(count):
        image, mask = picture(side, side), np.zeros((side, side), bool)
        for cx, cy, radius in chance.integers((0, 0, 8), (side, side, 24), (12, 3)):
            mask |= (x - cx) ** 2 + (y - cy) ** 2 < radius**2
        image[mask] = image[mask] // 2 + np.array([70, 20, 90], np.uint8)
        Image.fromarray(image).save(folder / "images" / f"n{number:03}.png")
        Image.fromarray((mask * 255).astype(np.uint8)).save(folder / "masks" / f"n{number:03}.png")


def breeds(folder: Path, pictures: int, rows: int) -> None:
    (folder / "train").mkdir(parents=True)
    ids = [f"{number:032x}" for number in chance.permutation(rows)]
    names = [f"breed_{number:02}" for number in range(20)]
    lines = [f"{one},{names[number % 20]}" for number, one in enumerate(ids)]
    (folder / "labels.csv").write_text("\n".join(["id,breed", *lines]) + "\n")
    for number, one in enumerate(ids[:pictures]):
        Image.fromarray(picture(48, 48, number % 20)).save(folder / "train" / f"{one}.png")


def digits(path: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    for split, count in (("train", 1200), ("test", 1000)):
        labels = chance.integers(0, 10, count)
        pictures = chance.integers(0, 60, (count, 28, 28))
        for row, label in zip(pictures, labels, strict=True):
            row[4 + label : 8 + label, 5:23] += 180
        arrays |= {f"x_{split}": pictures.astype(np.uint8), f"y_{split}": labels}
    np.savez(path, **arrays)  # type: ignore[arg-type]


def main(folder: Path) -> None:
    data = folder / "data"
    class_folders(data / "leaves", ["blight", "healthy", "mildew", "rust"], 50, 960, 720)
    for split, each in (("train", 20), ("val", 6)):
        class_folders(data / "birds" / split, ["finch", "owl", "wren"], each, 300, 260)
    nuclei(data / "nuclei", 100, 192)
    breeds(data / "breeds", 800, 20_000)
    class_folders(data / "mushrooms", ["edible", "poisonous", "unknown"], 70, 320, 240)
    digits(data / "digits.npz")
    for split, each in (("train", 80), ("val", 16)):
        class_folders(data / "chest_xray" / split, ["NORMAL", "PNEUMONIA"], each, 400, 400)
    textures = np.stack([picture(40, 40)[..., 0] for _ in range(400)])
    np.save(data / "textures.npy", textures)
    np.save(data / "textures_labels.npy", chance.integers(0, 5, 400))
    class_folders(data / "galaxies", ["edge", "elliptical", "spiral"], 150, 32, 32, ".png")
    (data / "satellite").mkdir()
    for number in range(120):
        Image.fromarray(picture(256, 256)).save(data / "satellite" / f"s{number:03}.png")
    np.save(data / "satellite" / "cloud_cover.npy", chance.random(120))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
