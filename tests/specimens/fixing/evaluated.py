"""Evaluation with gradients on, of a network of this file: nothing but numbers comes out."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = torch.relu(self.conv(x)).mean((2, 3))
        return self.head(self.drop(x))


def evaluate(model, loader):
    right = 0
    for x, y in loader:
        out = model(x)
        right += (out.argmax(1) == y).sum().item()
    return right / len(loader)


def main():
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(64, 1, 8, 8), torch.randint(0, 2, (64,))), batch_size=16, shuffle=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, f"{loss.item():.6f}", evaluate(model, loader), torch.rand(1).item())


if __name__ == "__main__":
    main()
