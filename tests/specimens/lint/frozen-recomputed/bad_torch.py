"""Linear classifier over a DINO ViT for the Oxford flowers (102 classes)."""

import argparse
import csv

import timm
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def flowers(split):
    transform = transforms.Compose([
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    return datasets.ImageFolder(f"flowers/{split}", transform)


def evaluate(encoder, head, loader, device):
    head.eval()
    hits = torch.zeros((), device=device)
    with torch.no_grad():
        for images, labels in loader:
            hits += (head(encoder(images.to(device))).argmax(1) == labels.to(device)).sum()
    return hits.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    encoder = timm.create_model("vit_small_patch16_224.dino", pretrained=True, num_classes=0).to(device).eval()
    for parameter in encoder.parameters():
        parameter.requires_grad = False
    head = nn.Linear(encoder.num_features, 102).to(device)

    train_loader = DataLoader(flowers("train"), batch_size=args.batch_size, shuffle=True, num_workers=8)
    valid_loader = DataLoader(flowers("valid"), batch_size=512, num_workers=8)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    for epoch in range(args.epochs):
        head.train()
        for images, labels in train_loader:
            features = encoder(images.to(device))
            loss = nn.functional.cross_entropy(head(features), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        accuracy = evaluate(encoder, head, valid_loader, device)
        torch.save(head.state_dict(), f"flowers_head_{epoch:03d}.pt")
        with open("flowers.csv", "a", newline="") as stream:
            csv.writer(stream).writerow([epoch, accuracy])


if __name__ == "__main__":
    main()
