"""Hourly load forecast with Lightning: a small transformer over one week, predict the next day."""
import json
import logging
import time
import warnings
from pathlib import Path

import tv_compat  # noqa: F401
import lightning as L
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from make_data import ensure

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

CONTEXT, HORIZON = 168, 24


class Windows(Dataset):
    def __init__(self, csv):
        df = pd.read_csv(csv)
        v = df[["load", "temp", "wind", "holiday"]].to_numpy(np.float32)
        self.v = torch.from_numpy((v - v.mean(0)) / v.std(0))

    def __len__(self):
        return (len(self.v) - CONTEXT - HORIZON) // 12

    def __getitem__(self, i):
        i *= 12
        return self.v[i:i + CONTEXT], self.v[i + CONTEXT:i + CONTEXT + HORIZON, 0]


class Forecaster(L.LightningModule):
    def __init__(self, hidden=256):
        super().__init__()
        self.patch = nn.Linear(4 * 24, hidden)
        layer = nn.TransformerEncoderLayer(hidden, 8, 4 * hidden, batch_first=True, dropout=0.1)
        self.enc = nn.TransformerEncoder(layer, 3)
        self.head = nn.Linear(hidden * (CONTEXT // 24), HORIZON)

    def forward(self, x):
        z = self.patch(x.reshape(len(x), CONTEXT // 24, -1))
        return self.head(self.enc(z).flatten(1))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.smooth_l1_loss(self(x), y)
        self.log("loss", loss, prog_bar=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4)


class WeightWatcher(L.Callback):
    """Keeps an eye on weights and gradients: histogram and quantiles per tensor, as json lines."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("")

    @staticmethod
    def summary(t):
        a = t.detach().cpu().numpy().ravel()
        counts, edges = np.histogram(a, bins=64)
        q = np.percentile(a, [1, 25, 50, 75, 99])
        return {"counts": counts.tolist(), "edges": edges.tolist(), "q": q.tolist()}

    def dump(self, trainer, module):
        record = {"step": trainer.global_step}
        for name, p in module.named_parameters():
            record[name] = self.summary(p)
            if p.grad is not None:
                record[name + ".grad"] = self.summary(p.grad)
        with self.path.open("a") as f:
            f.write(json.dumps(record) + "\n")

    def on_train_epoch_end(self, trainer, module):
        self.dump(trainer, module)


class Clock(L.Callback):
    def on_train_start(self, trainer, module):
        self.t0 = time.time()

    def on_train_end(self, trainer, module):
        n = trainer.global_step * trainer.train_dataloader.batch_size
        print(f"trained {n} samples in {time.time() - self.t0:.2f} s")


def cli_main():
    L.seed_everything(11, verbose=False)
    ds = Windows(ensure("meter") / "meter.csv")
    loader = DataLoader(ds, batch_size=16, shuffle=True, drop_last=True, num_workers=0)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[WeightWatcher("stranger-data/out-s05/hist.jsonl"), Clock()],
    )
    trainer.fit(Forecaster(), loader)


if __name__ == "__main__":
    cli_main()
