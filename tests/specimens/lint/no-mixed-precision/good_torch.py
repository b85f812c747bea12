"""Whales by their fluke, a large network fine-tuned on one card."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

EPOCHS = 40
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main():
    view = transforms.Compose([transforms.RandomResizedCrop(384), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    flukes = datasets.ImageFolder("flukes/train", transform=view)
    loader = DataLoader(flukes, batch_size=24, shuffle=True, num_workers=8, persistent_workers=True, pin_memory=True)
    model = models.convnext_base(weights="DEFAULT")
    model.classifier[2] = nn.Linear(1024, len(flukes.classes))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(EPOCHS):
        model.train()
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "epoch": epoch}, f"flukes_{epoch:03d}.pt")


if __name__ == "__main__":
    main()
