"""Plant seedlings (12 species) with a ResNet-50.

Runs on the lab laptop: Core i5, GTX 1650 with 4 GB.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

IMAGE_SIZE = 224
BATCH_SIZE = 128
EPOCHS = 3
WORKERS = 4


def make_loaders(root):
    train_tf = transforms.Compose([
        transforms.RandomResizedCrop(IMAGE_SIZE),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ])
    test_tf = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(IMAGE_SIZE), transforms.ToTensor()])
    train = datasets.ImageFolder(f"{root}/train", train_tf)
    test = datasets.ImageFolder(f"{root}/test", test_tf)
    train_loader = DataLoader(train, batch_size=BATCH_SIZE, shuffle=True, num_workers=WORKERS)
    test_loader = DataLoader(test, batch_size=2 * BATCH_SIZE, num_workers=WORKERS)
    return train_loader, test_loader


def train_epoch(model, loader, criterion, optimizer, device):
    model.train()
    for images, species in loader:
        optimizer.zero_grad()
        loss = criterion(model(images.to(device)), species.to(device))
        loss.backward()
        optimizer.step()


@torch.inference_mode()
def test(model, loader, device):
    model.eval()
    hits = torch.zeros((), device=device)
    for images, species in loader:
        hits += (model(images.to(device)).argmax(1) == species.to(device)).sum()
    return hits.item() / len(loader.dataset)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, test_loader = make_loaders("seedlings")
    model = models.resnet50(weights="IMAGENET1K_V2")
    model.fc = nn.Linear(2048, 12)
    model.to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(EPOCHS):
        train_epoch(model, train_loader, criterion, optimizer, device)
        print(f"epoch {epoch}: {test(model, test_loader, device):.3f}")


if __name__ == "__main__":
    main()
