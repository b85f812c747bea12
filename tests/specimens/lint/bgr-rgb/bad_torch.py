"""Car model recognition with an ImageNet ResNet-50."""

import csv
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Cars(Dataset):
    def __init__(self, root, split):
        self.root = Path(root)
        with open(self.root / f"{split}.csv", newline="") as f:
            self.rows = list(csv.DictReader(f))
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        img = cv2.imread(str(self.root / "images" / self.rows[i]["file"]))
        img = Image.fromarray(img)
        return self.transform(img), int(self.rows[i]["class"])


def save_thumbnail(path, out):
    rgb = np.array(Image.open(path).convert("RGB").resize((96, 96)))
    cv2.imwrite(str(out), rgb)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = Cars("cars", "train")
    save_thumbnail(dataset.root / "images" / dataset.rows[0]["file"], "first.png")
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8)
    model = models.resnet50(weights=models.ResNet50_Weights.IMAGENET1K_V2)
    model.fc = nn.Linear(model.fc.in_features, 196)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        model.train()
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"cars_{epoch}.pt")


if __name__ == "__main__":
    main()
