"""Udder health (somatic cell count class) from thermal curve features, two ways of training it."""

import numpy as np
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def curves(split):
    x = torch.from_numpy(np.load(f"udder/{split}_curves.npy")).float()
    y = torch.from_numpy(np.load(f"udder/{split}_classes.npy")).long()
    return TensorDataset(x, y)


def network():
    return nn.Sequential(nn.Linear(180, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 3))


class UdderModule(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        logits = self.net(x)
        self.log("val_accuracy", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def run_epoch(model, loader, optimizer=None):
    training = optimizer is not None
    model.train(training)
    total = torch.zeros((), device=device)
    with torch.set_grad_enabled(training):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.detach()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = torch.zeros((), device=device)
    for x, y in loader:
        right += (model(x.to(device)).argmax(1) == y.to(device)).sum()
    return right.item() / len(loader.dataset)


def predict(model, x):
    model.eval()
    with torch.inference_mode():
        return model(x.to(device)).softmax(1).cpu().numpy()


def main():
    train = DataLoader(curves("train"), batch_size=64, shuffle=True)
    valid = DataLoader(curves("valid"), batch_size=1024)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(3):
        train_loss = run_epoch(model, train, optimizer)
        valid_loss = run_epoch(model, valid)
        print(epoch, train_loss.item(), valid_loss.item(), evaluate(model, valid))
    np.save("udder_probabilities.npy", predict(model, curves("test").tensors[0]))

    trainer = L.Trainer(max_epochs=3, accelerator="auto", logger=L.pytorch.loggers.CSVLogger("logs"))
    trainer.fit(UdderModule(), train, valid)


if __name__ == "__main__":
    main()
