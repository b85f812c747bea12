"""Sentence order prediction on tokenised case reports."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCAB, LENGTH, WIDTH = 16_000, 128, 256
device = "cuda" if torch.cuda.is_available() else "cpu"


class OrderNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH, padding_idx=0)
        self.positions = nn.Parameter(torch.zeros(1, LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 512, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids):
        h = self.encoder(self.tokens(ids) + self.positions)
        return self.head(h.mean(1))


def read(split):
    ids = torch.from_numpy(np.load(f"reports_{split}_ids.npy")).long()
    swapped = torch.from_numpy(np.load(f"reports_{split}_swapped.npy")).long()
    return TensorDataset(ids, swapped)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = 0
    for ids, swapped in loader:
        right += (model(ids.to(device)).argmax(1) == swapped.to(device)).sum().item()
    return right / len(loader.dataset)


def main():
    train_loader = DataLoader(read("train"), batch_size=64, shuffle=True)
    dev_loader = DataLoader(read("dev"), batch_size=256)

    model = OrderNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    for epoch in range(3):
        model.train()
        forward = torch.compile(model, mode="reduce-overhead")
        for ids, swapped in train_loader:
            loss = criterion(forward(ids.to(device)), swapped.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {evaluate(model, dev_loader):.4f}")

    # short second phase on the long reports
    model.train()
    model = torch.compile(model)
    long_loader = DataLoader(read("long"), batch_size=32, shuffle=True)
    for ids, swapped in long_loader:
        optimizer.zero_grad(set_to_none=True)
        criterion(model(ids.to(device)), swapped.to(device)).backward()
        optimizer.step()

    torch.save(model.state_dict(), "order_net.pt")


if __name__ == "__main__":
    main()
