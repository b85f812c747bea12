"""Boats in harbours: one picture, many boxes, all boxes in one table."""

import pandas as pd
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


class Harbours(Dataset):
    def __init__(self, table):
        self.df = table
        self.names = sorted(table["name"].unique())
        columns = ["x1", "y1", "x2", "y2"]
        self.boxes = {name: rows[columns].to_numpy() for name, rows in table.groupby("name")}

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        boxes = self.boxes[name]
        target = {"boxes": torch.as_tensor(boxes, dtype=torch.float32), "labels": torch.ones(len(boxes), dtype=torch.int64)}
        return to_tensor(Image.open(f"harbours/{name}").convert("RGB")), target


def together(batch):
    return tuple(zip(*batch, strict=True))


def main():
    data = Harbours(pd.read_csv("boxes.csv"))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=4, persistent_workers=True, collate_fn=together)
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(num_classes=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    for epoch in range(4):
        for images, targets in loader:
            loss = sum(model(list(images), list(targets)).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"boats_{epoch}.pt")


if __name__ == "__main__":
    main()
