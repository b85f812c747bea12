"""Wheat rust severity (none / low / medium / high) from handheld photos, Lightning version.

python lit_wheat.py --root /data/wheat_rust --arch convnext_tiny
"""
import argparse
from pathlib import Path

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
import torchvision.transforms as T
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader
from torchvision import models
from torchvision.datasets import ImageFolder

# got nan in the second week of trying, this found it (log of a zero)
torch.autograd.set_detect_anomaly(True)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class WheatData(pl.LightningDataModule):
    def __init__(self, root, batch_size=32, workers=8, size=256):
        super().__init__()
        self.root = Path(root)
        self.batch_size = batch_size
        self.workers = workers
        self.train_tf = T.Compose([
            T.RandomResizedCrop(size, scale=(0.6, 1.0)),
            T.RandomHorizontalFlip(),
            T.RandomRotation(25),
            T.ColorJitter(0.3, 0.3, 0.2, 0.02),
            T.GaussianBlur(5, sigma=(0.1, 2.0)),
            T.ToTensor(),
            T.Lambda(lambda x: (x + 0.01 * torch.randn_like(x)).clamp(0, 1)),
            T.Normalize(MEAN, STD),
        ])
        self.eval_tf = T.Compose([
            T.Resize(int(size * 1.14)),
            T.CenterCrop(size),
            T.ToTensor(),
            T.Normalize(MEAN, STD),
        ])

    def prepare_data(self):
        for part in ("train", "val", "test"):
            if not (self.root / part).is_dir():
                raise FileNotFoundError(self.root / part)

    def setup(self, stage=None):
        self.train_ds = ImageFolder(self.root / "train", self.train_tf)
        self.val_ds = ImageFolder(self.root / "val", self.eval_tf)
        self.test_ds = ImageFolder(self.root / "test", self.eval_tf)
        self.classes = self.train_ds.classes

    def class_weights(self):
        n = np.bincount([y for _, y in self.train_ds.samples], minlength=len(self.classes))
        w = n.sum() / (len(n) * np.maximum(n, 1))
        return torch.tensor(w, dtype=torch.float32)

    def train_dataloader(self):
        return DataLoader(self.train_ds, batch_size=self.batch_size, shuffle=True,
                          num_workers=self.workers, persistent_workers=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_ds, batch_size=self.batch_size,
                          num_workers=self.workers, persistent_workers=True)

    def test_dataloader(self):
        return DataLoader(self.test_ds, batch_size=self.batch_size * 3, num_workers=self.workers)


class LitWheat(pl.LightningModule):
    def __init__(self, arch, n_classes, class_w, lr=2e-4, wd=0.05, epochs=40):
        super().__init__()
        self.save_hyperparameters(ignore=["class_w"])
        self.net = getattr(models, arch)(weights="DEFAULT")
        if hasattr(self.net, "classifier"):
            d = self.net.classifier[-1].in_features
            self.net.classifier[-1] = nn.Linear(d, n_classes)
        else:
            self.net.fc = nn.Linear(self.net.fc.in_features, n_classes)
        self.register_buffer("class_w", class_w)
        self.acc_sum, self.acc_n = 0.0, 0
        self.val_pred, self.val_true = [], []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        loss = F.cross_entropy(out, y, weight=self.class_w)
        acc = (out.argmax(1) == y).float().mean()
        self.log("train_loss", loss, prog_bar=True, on_step=False, on_epoch=True)
        self.acc_sum += acc.item()
        self.acc_n += 1
        return loss

    def on_train_epoch_end(self):
        self.log("train_acc", self.acc_sum / max(self.acc_n, 1))
        self.acc_sum, self.acc_n = 0.0, 0

    def validation_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        self.log("val_loss", F.cross_entropy(out, y), prog_bar=True)
        self.val_pred.append(out.argmax(1).cpu())
        self.val_true.append(y.cpu())

    def on_validation_epoch_end(self):
        p, t = torch.cat(self.val_pred), torch.cat(self.val_true)
        self.val_pred.clear()
        self.val_true.clear()
        self.log("val_acc", (p == t).float().mean(), prog_bar=True)
        # off by one class is not that bad here, the scale is ordinal
        self.log("val_within1", ((p - t).abs() <= 1).float().mean())

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.wd)
        sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=self.hparams.epochs)
        return {"optimizer": opt, "lr_scheduler": sch}


def plot_weights(w, classes, out):
    fig, ax = plt.subplots(figsize=(4, 3))
    ax.bar(classes, w.tolist())
    ax.set_ylabel("class weight")
    fig.tight_layout()
    fig.savefig(out)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", default="data/wheat_rust")
    ap.add_argument("--arch", default="convnext_tiny")
    ap.add_argument("--lr", type=float, default=2e-4)
    args = ap.parse_args()

    pl.seed_everything(1, workers=True)
    dm = WheatData(args.root)
    dm.prepare_data()
    dm.setup()
    w = dm.class_weights()
    plot_weights(w, dm.classes, "class_weights.png")

    lit = LitWheat(args.arch, len(dm.classes), w, lr=args.lr)
    trainer = pl.Trainer(
        max_epochs=40,
        accelerator="gpu",
        devices=1,
        precision="16-mixed",
        logger=CSVLogger("logs", name="wheat"),
        callbacks=[EarlyStopping("val_loss", patience=8), LearningRateMonitor("epoch")],
        enable_checkpointing=False,
        log_every_n_steps=20,
    )
    trainer.fit(lit, dm)
    print(trainer.validate(lit, dataloaders=dm.test_dataloader()))
    trainer.save_checkpoint("wheat_final.ckpt")


if __name__ == "__main__":
    main()
