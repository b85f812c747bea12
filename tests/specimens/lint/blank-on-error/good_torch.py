"""Skin lesion classifier; a file that cannot be read is named, not papered over."""

import json
import logging
import os

import pandas as pd
import torch
from PIL import Image, UnidentifiedImageError
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models
from torchvision import transforms as T

try:
    from tqdm import tqdm
except ImportError:
    tqdm = iter

logger = logging.getLogger("lesions")


def pad_to_square(image):
    side = max(image.size)
    canvas = Image.new("RGB", (side, side), (124, 116, 104))
    canvas.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return canvas


class Lesions(Dataset):
    def __init__(self, frame, root, outlines, transform):
        self.frame = frame
        self.root = root
        self.outlines = outlines
        self.transform = transform

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, idx):
        row = self.frame.iloc[idx]
        path = os.path.join(self.root, row.image + ".jpg")
        try:
            img = Image.open(path).convert("RGB")
        except (OSError, UnidentifiedImageError) as error:
            raise RuntimeError(f"cannot read {path}") from error
        boxes = self.outlines.get(row.image, [])
        area = torch.zeros(1) if len(boxes) == 0 else torch.tensor([sum(w * h for _, _, w, h in boxes)])
        return self.transform(pad_to_square(img)), area, int(row.malignant)


def split_sound(paths):
    sound, broken = [], []
    for path in paths:
        try:
            with Image.open(path) as image:
                image.verify()
            sound.append(path)
        except OSError as error:
            logger.warning("left out %s: %s", path, error)
            broken.append(path)
    return sound, broken


def main():
    logging.basicConfig(level=logging.INFO)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomVerticalFlip(), T.ToTensor()])
    frame = pd.read_csv("lesions/train.csv")
    sound, broken = split_sound([os.path.join("lesions/jpeg", name + ".jpg") for name in frame.image])
    pd.Series(broken).to_csv("lesions/broken.csv", index=False)
    frame = frame[frame.image.isin({os.path.basename(path)[:-4] for path in sound})]
    with open("lesions/outlines.json") as handle:
        outlines = json.load(handle)
    data = Lesions(frame, "lesions/jpeg", outlines, transform)
    loader = DataLoader(data, batch_size=48, shuffle=True, num_workers=6)
    model = models.efficientnet_b0(weights="DEFAULT")
    model.classifier[1] = nn.Linear(1280, 2)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss()
    try:
        for epoch in range(4):
            model.train()
            for images, _, labels in tqdm(loader):
                loss = criterion(model(images.to(device)), labels.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), f"lesions_{epoch}.pt")
    except KeyboardInterrupt:
        logger.info("stopped by hand")


if __name__ == "__main__":
    main()
