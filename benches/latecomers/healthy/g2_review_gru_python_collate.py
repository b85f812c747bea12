"""Review sentiment. Padding is written out by hand; the GRU is what takes the time."""
import json
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from make_data import ensure


def tokenize(text, table):
    out = []
    for w in text.split():
        if w not in table:
            table[w] = len(table) + 1
        out.append(table[w])
    return out


def collate(rows):
    longest = 0
    for ids, _ in rows:
        if len(ids) > longest:
            longest = len(ids)
    padded, mask, labels = [], [], []
    for ids, y in rows:
        row, m = [], []
        for i in range(longest):
            row.append(ids[i] if i < len(ids) else 0)
            m.append(1.0 if i < len(ids) else 0.0)
        padded.append(row)
        mask.append(m)
        labels.append(float(y))
    return torch.tensor(padded), torch.tensor(mask), torch.tensor(labels)


class Net(nn.Module):
    def __init__(self, n, dim=64, hidden=192):
        super().__init__()
        self.emb = nn.Embedding(n, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, 1)

    def forward(self, ids, mask):
        h, _ = self.rnn(self.emb(ids))
        return self.out((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).squeeze(1)


def main():
    torch.manual_seed(0)
    table = {}
    rows = []
    for line in open(ensure("reviews") / "reviews.jsonl"):
        r = json.loads(line)
        rows.append((tokenize(r["text"], table), r["label"]))
    loader = DataLoader(rows[:1800], batch_size=32, shuffle=True, collate_fn=collate)
    model = Net(len(table) + 1)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    seen, t0 = 0, time.time()
    for epoch in range(2):
        total = 0.0
        for ids, mask, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids, mask), y)
            opt.zero_grad()
            loss.backward()
            total_norm = 0.0
            for p in model.parameters():
                total_norm += p.grad.norm().item() ** 2
            scale = min(1.0, 1.0 / (total_norm ** 0.5 + 1e-6))
            for p in model.parameters():
                p.grad.mul_(scale)
            opt.step()
            total += loss.item()
            seen += len(y)
        print(f"epoch {epoch} loss {total / len(loader):.4f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
