"""Action recognition: the frames of every clip are listed once, in the constructor."""

import os
import random
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.io import read_image
from torchvision.models.video import r2plus1d_18
from torchvision.transforms import v2


def list_frames(root):
    found = {}
    for folder, _, names in os.walk(root):
        found[os.path.relpath(folder, root)] = sorted(name for name in names if name.endswith(".jpg"))
    return found


class ClipFrames(Dataset):
    def __init__(self, listing, root, length=8):
        with open(listing) as handle:
            self.clips = [line.split() for line in handle]
        self.root = Path(root)
        self.frames = list_frames(root)
        self.length = length
        self.transform = v2.Compose(
            [v2.RandomResizedCrop(112, antialias=True), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return len(self.clips)

    def walk(self, clip, start):
        for name in self.frames[clip][start : start + self.length]:
            yield read_image(str(self.root / clip / name))

    def __getitem__(self, index):
        clip, label = self.clips[index]
        start = random.randint(0, len(self.frames[clip]) - self.length)
        video = torch.stack(list(self.walk(clip, start)))
        return self.transform(video).transpose(0, 1), int(label)


def newest(folder):
    kept = sorted(Path(folder).glob("epoch_*.pt"))
    return kept[-1] if kept else None


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = ClipFrames("ucf/trainlist01.txt", "ucf/frames")
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=6)
    model = r2plus1d_18(weights="DEFAULT")
    model.fc = nn.Linear(512, 101)
    model = model.to(device)
    if (last := newest("runs/r2plus1d")) is not None:
        model.load_state_dict(torch.load(last, map_location=device, weights_only=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(12):
        model.train()
        for clips, labels in loader:
            clips, labels = clips.to(device), labels.to(device)
            loss = criterion(model(clips), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"runs/r2plus1d/epoch_{epoch:03d}.pt")
