"""Insect orders from photographs in two stages: new head first, then everything with a smaller rate for the backbone."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

augment = transforms.Compose([
    transforms.RandomResizedCrop(224),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
])


class InsectNet(nn.Module):
    def __init__(self, num_orders):
        super().__init__()
        network = models.regnet_y_1_6gf(weights="DEFAULT")
        self.head = nn.Linear(network.fc.in_features, num_orders)
        network.fc = nn.Identity()
        self.backbone = network

    def forward(self, x):
        return self.head(self.backbone(x))


class Probe(nn.Module):
    """A second, smaller head that looks at detached features and never reaches the backbone."""

    def __init__(self, width, num_families):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, num_families))

    def forward(self, features):
        return self.layers(features.detach())


def stage(model, loader, optimizer, device, epochs):
    model.train()
    for _ in range(epochs):
        for images, orders in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), orders.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def train_probe(model, probe, loader, device):
    optimizer = optim.Adam(probe.parameters(), lr=1e-3)
    for images, families in loader:
        with torch.no_grad():
            features = model.backbone(images.to(device))
        loss = nn.functional.cross_entropy(probe(features), families.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = datasets.ImageFolder("insects/train", augment)
    loader = DataLoader(data, batch_size=48, shuffle=True, num_workers=6)
    model = InsectNet(len(data.classes)).to(device)

    for parameter in model.backbone.parameters():
        parameter.requires_grad_(False)
    stage(model, loader, optim.AdamW(model.head.parameters(), lr=1e-3), device, epochs=2)

    for parameter in model.backbone.parameters():
        parameter.requires_grad_(True)
    groups = [{"params": model.backbone.parameters(), "lr": 1e-5}, {"params": model.head.parameters(), "lr": 1e-4}]
    stage(model, loader, optim.AdamW(groups), device, epochs=4)

    probe = Probe(model.head.in_features, len(data.classes)).to(device)
    train_probe(model, probe, loader, device)
    torch.save({"model": model.state_dict(), "probe": probe.state_dict()}, "insects.pt")


if __name__ == "__main__":
    main()
