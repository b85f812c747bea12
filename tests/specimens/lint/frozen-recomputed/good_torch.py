"""Dog breeds: a linear head on features computed once, then the last two stages of the network trained as well."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import datasets, models, transforms

EPOCHS = 40
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def breeds(split):
    transform = transforms.Compose([transforms.Resize(232), transforms.CenterCrop(224), transforms.ToTensor()])
    return datasets.ImageFolder(f"dogs/{split}", transform)


def save(state, path):
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


@torch.no_grad()
def extract(encoder, data):
    features, labels = [], []
    for images, targets in DataLoader(data, batch_size=256, num_workers=8):
        features.append(encoder(images.to(DEVICE)).cpu())
        labels.append(targets)
    return TensorDataset(torch.cat(features), torch.cat(labels))


def train_head(encoder, data):
    encoder.requires_grad_(False)
    loader = DataLoader(extract(encoder, data), batch_size=256, shuffle=True)
    head = nn.Linear(2048, 120).to(DEVICE)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        for features, labels in loader:
            loss = nn.functional.cross_entropy(head(features.to(DEVICE)), labels.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save(head.state_dict(), "head.pt")
    return head


def finetune(network, data):
    for part in (network.conv1, network.bn1, network.layer1, network.layer2):
        for parameter in part.parameters():
            parameter.requires_grad = False
    loader = DataLoader(data, batch_size=48, shuffle=True, num_workers=8)
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-5)
    for epoch in range(6):
        network.train()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images.to(DEVICE)), labels.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        save(network.state_dict(), "finetuned.pt")


def main():
    data = breeds("train")
    encoder = models.resnet50(weights="DEFAULT")
    encoder.fc = nn.Identity()
    head = train_head(encoder.to(DEVICE).eval(), data)

    network = models.resnet50(weights="DEFAULT")
    network.fc = head
    finetune(network.to(DEVICE), data)


if __name__ == "__main__":
    main()
