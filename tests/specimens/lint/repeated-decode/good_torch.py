import argparse
import csv
import os
from functools import lru_cache
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets
from torchvision import transforms as T

NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def make_small_copies(folder, out, size):
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.jpg")):
        with Image.open(path) as image:
            image.convert("RGB").resize((size, size), Image.BICUBIC).save(out / path.name, quality=95)


@lru_cache(maxsize=None)
def range_map(region):
    return T.functional.to_tensor(Image.open(f"mushrooms/regions/{region}.png").convert("L").resize((64, 64)))


class Mushrooms(Dataset):
    def __init__(self, table, folder):
        with open(table, newline="") as handle:
            self.items = [(row["file"], int(row["species"])) for row in csv.DictReader(handle)]
        self.folder = folder
        self.transform = T.Compose([T.RandomHorizontalFlip(), T.ToTensor(), NORMALIZE])

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name, species = self.items[i]
        img = Image.open(self.folder / name)
        return self.transform(img), species


class Habitats(Dataset):
    def __init__(self, paths, regions):
        self.paths = paths
        self.regions = regions
        self.crop = T.Compose([T.RandomResizedCrop(224, scale=(0.2, 1.0)), T.ToTensor(), NORMALIZE])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        photo = Image.open(self.paths[i]).convert("RGB")
        return self.crop(photo), range_map(self.regions[i])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=Path, default=Path("mushrooms/photos"))
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    small = Path("mushrooms/small_224")
    make_small_copies(args.photos, small, 224)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = DataLoader(Mushrooms("mushrooms/train.csv", small), batch_size=64, shuffle=True, num_workers=8)
    fixed = T.Compose([T.Resize((224, 224)), T.ToTensor(), NORMALIZE])
    held_out = DataLoader(datasets.ImageFolder("mushrooms/test", fixed), batch_size=256, num_workers=8)
    model = timm.create_model("convnext_tiny", pretrained=True, num_classes=100).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    for epoch in range(args.epochs):
        model.train()
        for x, y in train:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.save({"epoch": epoch, "model": model.state_dict()}, "runs/mushrooms.part")
        os.replace("runs/mushrooms.part", "runs/mushrooms.pt")

    model.eval()
    with torch.inference_mode():
        right = sum((model(x.to(device)).argmax(1).cpu() == y).sum() for x, y in held_out)
    print("accuracy", int(right) / len(held_out.dataset))


if __name__ == "__main__":
    main()
