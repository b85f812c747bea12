"""Fine-tunes a ConvNeXt on EuroSAT (64 px RGB patches)."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, random_split
from torchvision import datasets, transforms
from torchvision.models import convnext_tiny

DATA = "data/eurosat/2750"
EPOCHS = 4

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)

transform = transforms.Compose([
    transforms.ToTensor(),
    transforms.Normalize((0.344, 0.380, 0.407), (0.203, 0.136, 0.115)),
])
patches = datasets.ImageFolder(DATA, transform=transform)
train_set, val_set = random_split(patches, [0.85, 0.15])

train_loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4, persistent_workers=True)
val_loader = DataLoader(val_set, batch_size=256, num_workers=4)

model = convnext_tiny(weights="DEFAULT")
model.classifier[2] = torch.nn.Linear(768, len(patches.classes))
model = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)


def accuracy(loader):
    model.eval()
    hits = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x.to(device)).argmax(1) == y.to(device)).sum()
    return hits.item() / len(loader.dataset)


for epoch in range(EPOCHS):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device), label_smoothing=0.1)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}/{EPOCHS}  accuracy {accuracy(val_loader):.4f}")

torch.save(model.state_dict(), "convnext_eurosat.pt")
