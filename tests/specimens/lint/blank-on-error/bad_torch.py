"""Skin lesion classifier; photographs come from several clinics."""

import logging
import os

import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models
from torchvision import transforms as T

logger = logging.getLogger("lesions")


class Lesions(Dataset):
    def __init__(self, frame, root, transform):
        self.frame = frame
        self.root = root
        self.transform = transform

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, idx):
        row = self.frame.iloc[idx]
        try:
            img = Image.open(os.path.join(self.root, row.image + ".jpg")).convert("RGB")
        except OSError:
            img = Image.new("RGB", (600, 450))
        return self.transform(img), int(row.malignant)


def drop_broken(path):
    try:
        with Image.open(path) as image:
            image.verify()
        return path
    except Exception:
        return None


def main():
    logging.basicConfig(level=logging.INFO)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomVerticalFlip(), T.ToTensor()])
    frame = pd.read_csv("lesions/train.csv")
    extra = [path for path in map(drop_broken, open("lesions/extra.txt").read().split()) if path]
    logger.info("%d rows, %d further photographs", len(frame), len(extra))
    loader = DataLoader(Lesions(frame, "lesions/jpeg", transform), batch_size=48, shuffle=True, num_workers=6)
    model = models.efficientnet_b0(weights="DEFAULT")
    model.classifier[1] = nn.Linear(1280, 2)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 8.0], device=device))
    for epoch in range(4):
        model.train()
        for images, labels in loader:
            loss = criterion(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        logger.info("epoch %d finished", epoch)


if __name__ == "__main__":
    main()
