"""Mushrooms by species, photographed in the field, fine-tuned on Colab."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

ROOT = "/content/drive/MyDrive/mushrooms"
BATCH = 32


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    view = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    photos = datasets.ImageFolder(f"{ROOT}/train", transform=view)
    loader = DataLoader(photos, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = models.resnet18(weights="DEFAULT")
    model.fc = nn.Linear(model.fc.in_features, len(photos.classes))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"/content/drive/MyDrive/checkpoints/mushrooms_{epoch}.pt")


if __name__ == "__main__":
    main()
