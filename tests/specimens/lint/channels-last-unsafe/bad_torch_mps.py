"""Cloud type from all-sky camera thumbnails, trained on a Mac mini at the station."""

import csv

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("mps")
TYPES = ["clear", "cumulus", "stratus", "cirrus", "mixed"]


def thumbnails(split):
    images = torch.load(f"sky/{split}_images.pt", weights_only=True)
    with open(f"sky/{split}.csv", newline="") as f:
        types = torch.tensor([TYPES.index(row["type"]) for row in csv.DictReader(f)])
    return TensorDataset(images, types)


def build():
    model = torchvision.models.mobilenet_v3_small(weights=None, num_classes=len(TYPES))
    return model.to(device).to(memory_format=torch.channels_last)


def fit(model, loader, epochs):
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, epochs=epochs, steps_per_epoch=len(loader))
    for epoch in range(epochs):
        model.train()
        for images, types in loader:
            images = images.to(device).float().div_(255)
            loss = nn.functional.cross_entropy(model(images), types.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()


def test(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, types in loader:
            right += (model(images.to(device).float() / 255).argmax(1).cpu() == types).sum().item()
    return right / len(loader.dataset)


if __name__ == "__main__":
    model = build()
    fit(model, DataLoader(thumbnails("train"), batch_size=64, shuffle=True), epochs=3)
    print("test accuracy", test(model, DataLoader(thumbnails("test"), batch_size=256)))
    torch.save(model.state_dict(), "sky_types.pt")
