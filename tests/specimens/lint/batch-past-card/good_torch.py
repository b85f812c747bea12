"""Bark photographs (20 species) with a ResNet-50.

The photographs are 64 GB on disk. The machine has 32 GB of RAM and a GTX 1650 with 4 GB: 16 images at a time, summed
over 8 steps.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

IMAGE_SIZE = 224
BATCH_SIZE = 16
ACCUMULATE = 8
EFFECTIVE_BATCH_SIZE = BATCH_SIZE * ACCUMULATE
TEST_BATCH_SIZE = 128
EPOCHS = 3


def make_loaders(root, workers=4):
    train_tf = transforms.Compose([
        transforms.RandomResizedCrop(IMAGE_SIZE),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ])
    test_tf = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(IMAGE_SIZE), transforms.ToTensor()])
    train = datasets.ImageFolder(f"{root}/train", train_tf)
    test = datasets.ImageFolder(f"{root}/test", test_tf)
    return (
        DataLoader(train, batch_size=BATCH_SIZE, shuffle=True, num_workers=workers, drop_last=True),
        DataLoader(test, batch_size=TEST_BATCH_SIZE, num_workers=workers),
    )


def train_epoch(model, loader, optimizer, device):
    model.train()
    optimizer.zero_grad()
    for step, (images, species) in enumerate(loader, start=1):
        loss = nn.functional.cross_entropy(model(images.to(device)), species.to(device))
        (loss / ACCUMULATE).backward()
        if step % ACCUMULATE == 0:
            optimizer.step()
            optimizer.zero_grad()


@torch.inference_mode()
def test(model, loader, device):
    model.eval()
    hits = torch.zeros((), device=device)
    for images, species in loader:
        hits += (model(images.to(device)).argmax(1) == species.to(device)).sum()
    return hits.item() / len(loader.dataset)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, test_loader = make_loaders("bark")
    model = models.resnet50(weights="IMAGENET1K_V2")
    model.fc = nn.Linear(2048, 20)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * EFFECTIVE_BATCH_SIZE / 256, momentum=0.9)
    for epoch in range(EPOCHS):
        train_epoch(model, train_loader, optimizer, device)
        print(f"epoch {epoch}: {test(model, test_loader, device):.3f}")


if __name__ == "__main__":
    main()
