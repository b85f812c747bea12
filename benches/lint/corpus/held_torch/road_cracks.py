"""Cracks in road photos (dash cam), three kinds: none, lengthwise, alligator.

Runs on the M2 laptop. Usage: python road_cracks.py frames/ labels.csv
"""
import csv
import os
import sys
from os.path import *
from glob import *

import torch
from torch.nn import *
from torch.nn.functional import cross_entropy
from torch.utils.data import *
from torchvision.transforms import *
from torchvision.models import mobilenet_v3_large
from PIL import Image
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

EPOCHS = 30
BATCH = 32
KINDS = ["none", "lengthwise", "alligator"]
dev = torch.device("mps")

train_tf = Compose([
    RandomResizedCrop(320, scale=(0.3, 1.0)),
    RandomHorizontalFlip(),
    ColorJitter(0.3, 0.3, 0.1),
    ToTensor(),
    Lambda(lambda t: t + 0.02 * torch.randn_like(t)),
    Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
])
# dash cam frames are 1280x720, the road is in the lower middle
test_tf = Compose([CenterCrop(640), ToTensor(), Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])


def read_labels(path):
    with open(path, newline="") as fh:
        rows = list(csv.DictReader(fh))
    return [(r["frame"], KINDS.index(r["kind"])) for r in rows if r["kind"] in KINDS]


class Frames(Dataset):
    def __init__(self, folder, rows, tf):
        self.folder = folder
        self.rows = rows
        self.tf = tf

    def __len__(self):
        return len(self.rows)

    def find(self, name):
        # newer drives were exported as png
        p = join(self.folder, name + ".png")
        if exists(p):
            return p
        return join(self.folder, name + ".jpg")

    def __getitem__(self, i):
        name, y = self.rows[i]
        im = Image.open(self.find(name)).convert("RGB")
        return self.tf(im), y


def build():
    net = mobilenet_v3_large(weights="DEFAULT")
    net.classifier = Sequential(Linear(960, 256), Hardswish(), Dropout(0.2), Linear(256, len(KINDS)))
    return net


def test(net, loader):
    net.eval()
    good = total = 0
    with torch.inference_mode():
        for x, y in loader:
            p = net(x.to(dev)).argmax(1)
            good += (p.cpu() == y).sum().item()
            total += len(y)
    return good / total


def save(net, opt, epoch, path="cracks.pt"):
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, path + ".new")
    os.replace(path + ".new", path)


def main(folder, table):
    print(len(glob(join(folder, "*.jpg"))), "jpg,", len(glob(join(folder, "*.png"))), "png")
    rows = read_labels(table)
    if not isdir(folder):
        sys.exit("no such folder: " + folder)
    # drives are in time order, last fifth is for testing
    cut = int(0.8 * len(rows))
    train_set = Frames(folder, rows[:cut], train_tf)
    test_set = Frames(folder, rows[cut:], test_tf)
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True, pin_memory=True)
    test_loader = DataLoader(test_set, batch_size=2 * BATCH)

    net = build().to(dev, memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)
    start = 0
    if isfile("cracks.pt"):
        old = torch.load("cracks.pt", map_location="cpu", weights_only=True)
        net.load_state_dict(old["net"])
        opt.load_state_dict(old["opt"])
        start = old["epoch"] + 1

    losses, accs = [], []
    for epoch in range(start, EPOCHS):
        net.train()
        total = torch.zeros((), device=dev)
        for step, (x, y) in enumerate(train_loader):
            x, y = x.to(dev, non_blocking=True), y.to(dev)
            loss = cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
            if step % 50 == 0:
                print(epoch, step, loss.item())
        sched.step()
        acc = test(net, test_loader)
        losses.append(total.item() / len(train_loader))
        accs.append(acc)
        print(f"epoch {epoch}: {losses[-1]:.4f} {acc:.3f}")
        save(net, opt, epoch)

    fig, (a, b) = plt.subplots(2, 1, sharex=True)
    a.plot(losses)
    b.plot(accs)
    b.set_xlabel("epoch")
    fig.savefig("cracks_curve.png", dpi=120)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
