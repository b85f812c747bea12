"""Distil a wide teacher into a small student on an image folder."""
import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from make_data import ensure


class Folder(Dataset):
    def __init__(self, root):
        classes = sorted(p.name for p in Path(root).iterdir())
        self.items = [(p, i) for i, c in enumerate(classes) for p in sorted((Path(root) / c).glob("*.jpg"))]
        self.n_classes = len(classes)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, y = self.items[i]
        img = np.array(Image.open(path).convert("RGB"), dtype=np.float32) / 127.5 - 1
        return torch.from_numpy(img).permute(2, 0, 1), y


def conv_bn(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


def make_net(width, depth, n_classes):
    layers = [conv_bn(3, width)]
    for d in range(depth):
        layers += [conv_bn(width * 2 ** d, width * 2 ** (d + 1), 2)]
        layers += [conv_bn(width * 2 ** (d + 1), width * 2 ** (d + 1))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 2 ** depth, n_classes))


class Distiller(nn.Module):
    def __init__(self, teacher, student, temperature=3.0, alpha=0.7):
        super().__init__()
        self.teacher, self.student = teacher, student
        self.t, self.alpha = temperature, alpha

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x, y):
        s = self.student(x)
        with torch.no_grad():
            t = self.teacher(x)
        soft = F.kl_div(F.log_softmax(s / self.t, 1), F.softmax(t / self.t, 1), reduction="batchmean") * self.t ** 2
        hard = F.cross_entropy(s, y)
        return self.alpha * soft + (1 - self.alpha) * hard, s


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=0.02)
    args = ap.parse_args()

    torch.manual_seed(0)
    data = Folder(ensure("shapes"))
    loader = DataLoader(data, args.batch_size, shuffle=True)
    teacher = make_net(64, 2, data.n_classes)  # stands in for a downloaded checkpoint
    student = make_net(12, 2, data.n_classes)
    kd = Distiller(teacher, student).train()
    opt = torch.optim.SGD(student.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)

    seen, t0 = 0, time.time()
    for epoch in range(args.epochs):
        hits = 0
        for x, y in loader:
            loss, logits = kd(x, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (logits.argmax(1) == y).sum().item()
            seen += len(y)
        print(f"epoch {epoch}: loss {loss.item():.4f} acc {hits / len(data):.3f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
