"""Weed / crop / soil classification of drone plot crops kept as one uint8 array."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.tensorboard import SummaryWriter

if torch.cuda.is_available():
    DEVICE, LAYOUT = torch.device("cuda"), torch.channels_last
else:
    DEVICE, LAYOUT = torch.device("cpu"), torch.contiguous_format


class Plots(Dataset):
    def __init__(self, split):
        packed = np.load(f"plots/{split}.npy")
        # one 32-bit word holds the four bands
        self.pixels = packed.view(np.uint8).reshape(*packed.shape, 4)
        self.labels = np.load(f"plots/{split}_labels.npy").astype(np.int64)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.pixels[i]).permute(2, 0, 1), self.labels[i : i + 1]


class PlotNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(4, 48, 5, stride=2, padding=2), nn.BatchNorm2d(48), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(48, 96, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(96 * 16, classes)
        self.aux = nn.Linear(48, classes)

    def forward(self, x):
        low = self.stem(x)
        high = self.body(low)
        return self.head(high.flatten(1)), self.aux(low.mean((2, 3)).reshape(x.shape[0], -1))


def prepare(pixels):
    return pixels.to(DEVICE, non_blocking=True).float().div_(255).contiguous(memory_format=LAYOUT)


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    right = 0
    for pixels, labels in loader:
        logits, _ = model(prepare(pixels))
        right += (logits.argmax(1).cpu() == labels.view(-1)).sum().item()
    return right / len(loader.dataset)


def main():
    train = DataLoader(Plots("train"), batch_size=96, shuffle=True, num_workers=4, pin_memory=DEVICE.type == "cuda")
    valid = DataLoader(Plots("valid"), batch_size=384, num_workers=4)
    model = PlotNet().to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    writer = SummaryWriter("runs/plots")

    for epoch in range(20):
        model.train()
        for pixels, labels in train:
            labels = labels.view(-1).to(DEVICE, non_blocking=True)
            main_logits, aux_logits = model(prepare(pixels))
            loss = nn.functional.cross_entropy(main_logits, labels)
            loss = loss + 0.3 * nn.functional.cross_entropy(aux_logits, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        writer.add_scalar("accuracy/valid", evaluate(model, valid), epoch)
        torch.save({"model": model.state_dict(), "epoch": epoch}, "plots.pt.part")
        os.replace("plots.pt.part", "plots.pt")


if __name__ == "__main__":
    main()
