"""Handwritten formulas, one grey crop for each symbol."""

from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SYMBOLS = sorted(path.name for path in Path("symbols").iterdir())
view = transforms.Compose([transforms.RandomAffine(5), transforms.ToTensor()])


class Symbols(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).rglob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        return view(Image.open(path).convert("L")), SYMBOLS.index(path.parent.name)


def main():
    data = Symbols("symbols")
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, len(SYMBOLS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(30):
        loader = DataLoader(data, batch_size=256, shuffle=True, num_workers=4)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"symbols_{epoch}.pt")


if __name__ == "__main__":
    main()
