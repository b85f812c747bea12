import argparse
import csv
import os

import timm
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


class Mushrooms(Dataset):
    def __init__(self, table, folder, size):
        with open(table, newline="") as handle:
            self.items = [(row["file"], int(row["species"])) for row in csv.DictReader(handle)]
        self.folder = folder
        self.transform = T.Compose(
            [
                T.Resize((size, size)),
                T.RandomHorizontalFlip(),
                T.ToTensor(),
                T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name, species = self.items[i]
        img = Image.open(os.path.join(self.folder, name)).convert("RGB")
        return self.transform(img), species


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", default="mushrooms/train.csv")
    parser.add_argument("--folder", default="mushrooms/photos")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", default="runs/mushrooms.pt")
    return parser.parse_args()


def main():
    args = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = Mushrooms(args.table, args.folder, args.size)
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=8, drop_last=True)
    model = timm.create_model("convnext_tiny", pretrained=True, num_classes=100).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    for epoch in range(args.epochs):
        model.train()
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.save({"epoch": epoch, "model": model.state_dict()}, args.out + ".part")
        os.replace(args.out + ".part", args.out)


if __name__ == "__main__":
    main()
