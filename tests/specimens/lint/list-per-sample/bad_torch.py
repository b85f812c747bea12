"""Action recognition: eight frames of a clip, an R(2+1)D network."""

import glob
import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.io import read_image
from torchvision.models.video import r2plus1d_18
from torchvision.transforms import v2


class ClipFrames(Dataset):
    def __init__(self, listing, root, length=8):
        with open(listing) as handle:
            self.clips = [line.split() for line in handle]
        self.root = root
        self.length = length
        self.transform = v2.Compose(
            [v2.RandomResizedCrop(112, antialias=True), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip, label = self.clips[index]
        frames = sorted(glob.glob(os.path.join(self.root, clip, "*.jpg")))
        start = random.randint(0, len(frames) - self.length)
        video = torch.stack([read_image(name) for name in frames[start : start + self.length]])
        return self.transform(video).transpose(0, 1), int(label)


def train_one_epoch(model, loader, optimizer, criterion, device):
    model.train()
    total = torch.zeros((), device=device)
    for clips, labels in loader:
        clips, labels = clips.to(device), labels.to(device)
        loss = criterion(model(clips), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = ClipFrames("ucf/trainlist01.txt", "ucf/frames")
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=6)
    model = r2plus1d_18(weights="DEFAULT")
    model.fc = nn.Linear(512, 101)
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(4):
        mean_loss = train_one_epoch(model, loader, optimizer, nn.CrossEntropyLoss(), device)
        print(epoch, mean_loss)
