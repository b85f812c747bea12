"""Age of bones from hand radiographs (regression)."""

import os

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset


class BoneAge(Dataset):
    """Radiographs prepared as 256 x 256 arrays."""

    def __init__(self, folder):
        self.folder = folder
        self.names = sorted(os.listdir(os.path.join(folder, "arrays")))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        table = pd.read_csv(os.path.join(self.folder, "boneage.csv"))
        row = table[table["id"] == int(name.split(".")[0])].iloc[0]
        hand = np.load(os.path.join(self.folder, "arrays", name)).astype(np.float32) / 255.0
        return torch.from_numpy(hand)[None], np.float32(row["boneage"] / 228.0), np.float32(row["male"])


class AgeModel(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.backbone = torchvision.models.resnet18(num_classes=64)
        self.backbone.conv1 = torch.nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
        self.out = torch.nn.Linear(65, 1)

    def forward(self, hand, male):
        return self.out(torch.cat([self.backbone(hand), male[:, None]], dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        hand, age, male = batch
        loss = F.l1_loss(self(hand, male), age)
        self.log("train_mae", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


if __name__ == "__main__":
    loader = DataLoader(BoneAge("boneage"), batch_size=32, shuffle=True, num_workers=4)
    trainer = L.Trainer(max_epochs=20, accelerator="auto", default_root_dir="runs/boneage")
    trainer.fit(AgeModel(), loader)
