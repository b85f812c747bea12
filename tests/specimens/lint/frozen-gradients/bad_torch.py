"""Car makes from photographs: the pretrained network is kept, only the new last layer learns."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

CONFIG = {"root": "stanford_cars", "batch": 32, "epochs": 4, "rate": 1e-3, "workers": 6}

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
augment = transforms.Compose([
    transforms.RandomResizedCrop(224, scale=(0.6, 1.0)),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    transforms.Normalize(MEAN, STD),
])


class CarNet(nn.Module):
    def __init__(self, num_makes):
        super().__init__()
        network = models.resnet50(weights=models.ResNet50_Weights.IMAGENET1K_V2)
        self.backbone = nn.Sequential(*list(network.children())[:-1])
        self.head = nn.Linear(network.fc.in_features, num_makes)

    def forward(self, x):
        features = self.backbone(x).flatten(1)
        return self.head(features)


def run():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = datasets.ImageFolder(CONFIG["root"] + "/train", transform=augment)
    loader = DataLoader(data, batch_size=CONFIG["batch"], shuffle=True, num_workers=CONFIG["workers"])
    model = CarNet(len(data.classes)).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = optim.AdamW(model.head.parameters(), lr=CONFIG["rate"])

    for epoch in range(CONFIG["epochs"]):
        total = torch.zeros((), device=device)
        for images, makes in loader:
            optimizer.zero_grad()
            loss = criterion(model(images.to(device)), makes.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")
    torch.save(model.head.state_dict(), "cars_head.pt")


if __name__ == "__main__":
    run()
