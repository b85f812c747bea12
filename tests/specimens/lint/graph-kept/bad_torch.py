"""Denoises sonar images with a small residual network and keeps an eye on how sure the classifier branch is."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, 1, 3, padding=1)
        self.sure = nn.Linear(width, 2)

    def forward(self, x):
        hidden = F.relu(self.middle(F.relu(self.first(x))))
        return x - self.last(hidden), self.sure(hidden.mean((2, 3)))


def make_loader(path):
    pack = torch.load(path, weights_only=True)
    return DataLoader(TensorDataset(pack["noisy"], pack["clean"], pack["target"]), batch_size=64, shuffle=True)


def train():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = make_loader("sonar.pt")
    model = Denoiser().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        epoch_loss = 0.0
        all_logits, all_targets = [], []
        for noisy, clean, target in loader:
            noisy, clean, target = noisy.to(device), clean.to(device), target.to(device)
            restored, logits = model(noisy)
            loss = F.l1_loss(restored, clean) + 0.1 * F.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss
            all_logits.append(logits)
            all_targets.append(target)
        accuracy = (torch.cat(all_logits).argmax(1) == torch.cat(all_targets)).float().mean()
        print(f"{epoch:2d}  loss {epoch_loss / len(loader):.4f}  accuracy {accuracy:.3f}")
    torch.save(model.state_dict(), "denoiser.pt")


if __name__ == "__main__":
    train()
