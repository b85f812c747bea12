"""Retina fundus grading; worker processes are spawned because the decoder library keeps threads."""

import multiprocessing
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models
from torchvision.transforms import functional as TF

CONTEXT = multiprocessing.get_context("spawn")
METHOD = multiprocessing.get_start_method(allow_none=True)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Fundus(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*/*.jpg"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        return TF.to_tensor(Image.open(file).convert("RGB")), int(file.parent.name)


def start_method(name):
    if multiprocessing.get_start_method(allow_none=True) != name:
        multiprocessing.set_start_method(name, force=True)


def train_epoch(model, loader, optimizer):
    model.train()
    for images, grades in loader:
        loss = nn.functional.cross_entropy(model(images.to(DEVICE)), grades.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    model = models.efficientnet_b0(weights="DEFAULT")
    model.classifier[1] = nn.Linear(1280, 5)
    model.to(DEVICE)
    loader = DataLoader(
        Fundus("fundus_512/train"), batch_size=16, shuffle=True, num_workers=6, multiprocessing_context=CONTEXT
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(8):
        train_epoch(model, loader, optimizer)
        torch.save(model.state_dict(), f"fundus_{epoch}.pt")


if __name__ == "__main__":
    start_method("spawn")
    torch.multiprocessing.set_start_method("spawn", force=True)
    main()
