"""Which painter: a small head on features of a pretrained network."""

from pathlib import Path

import timm
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PAINTERS = ["hals", "vermeer", "steen"]
view = transforms.Compose([transforms.Resize(224), transforms.CenterCrop(224), transforms.ToTensor()])


class Paintings(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).rglob("*.jpg"))
        self.encoder = timm.create_model("vit_small_patch16_224", pretrained=True, num_classes=0).eval()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        picture = view(Image.open(path).convert("RGB"))
        with torch.no_grad():
            features = self.encoder(picture.unsqueeze(0)).squeeze(0)
        return features, PAINTERS.index(path.parent.name)


def main():
    loader = DataLoader(Paintings("paintings"), batch_size=32, shuffle=True, num_workers=4, persistent_workers=True)
    head = nn.Linear(384, len(PAINTERS))
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    for epoch in range(4):
        for features, labels in loader:
            loss = nn.functional.cross_entropy(head(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(head.state_dict(), f"painters_{epoch}.pt")


if __name__ == "__main__":
    main()
