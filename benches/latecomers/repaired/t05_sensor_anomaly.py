"""Anomaly detection in multichannel sensor windows with live AUC in the log."""
import time

import numpy as np
import torch
import torch.nn as nn
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.utils.data import DataLoader, TensorDataset

from make_data import ensure


class RankingMetrics:
    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.labels = [], []

    def update(self, scores, labels):
        self.scores.append(scores.detach().numpy())
        self.labels.append(labels.numpy())

    def compute(self):
        s, y = np.concatenate(self.scores), np.concatenate(self.labels)
        if y.min() == y.max():
            return {"auc": float("nan"), "ap": float("nan")}
        return {"auc": roc_auc_score(y, s), "ap": average_precision_score(y, s)}


class TCN(nn.Module):
    def __init__(self, ch=4, width=24):
        super().__init__()
        self.inp = nn.Conv1d(ch, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        for conv in self.blocks:
            h = h + torch.relu(conv(h))
        return self.head(h.mean(-1)).squeeze(-1)


class Loop:
    def __init__(self, model, loader, epochs):
        self.model, self.loader, self.epochs = model, loader, epochs
        self.opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, 4e-3, total_steps=epochs * len(loader))
        self.loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
        self.metrics = RankingMetrics()
        self.status = {}
        self.seen = 0

    def train_step(self, x, y):
        logits = self.model(x)
        loss = self.loss_fn(logits, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        return logits, loss

    def on_step_end(self, step, logits, loss, y):
        self.metrics.update(logits, y)
        if step % 100 == 0:
            self.status = {"loss": loss.item(), **self.metrics.compute()}
            print(f"  step {step}: " + " ".join(f"{k} {v:.4f}" for k, v in self.status.items()))

    def run(self):
        t0 = time.time()
        for epoch in range(self.epochs):
            self.metrics.reset()
            for step, (x, y) in enumerate(self.loader):
                logits, loss = self.train_step(x, y)
                self.on_step_end(step, logits, loss, y)
                self.seen += len(x)
            print(f"epoch {epoch}: " + " ".join(f"{k} {v:.4f}" for k, v in self.metrics.compute().items()))
        print(f"trained {self.seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    torch.manual_seed(0)
    raw = np.load(ensure("sensors") / "sensors.npz")
    data = TensorDataset(torch.from_numpy(raw["x"]), torch.from_numpy(raw["y"]))
    Loop(TCN(), DataLoader(data, batch_size=64, shuffle=True), epochs=2).run()
