import json
import time
from collections import Counter

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

from make_data import ensure

MAX_LEN = 256
PAD, UNK = 0, 1


class Vocab:
    def __init__(self, texts, size=4000):
        counts = Counter(w for t in texts for w in t.split())
        self.index = {w: i + 2 for i, (w, _) in enumerate(counts.most_common(size))}

    def __len__(self):
        return len(self.index) + 2

    def encode(self, text):
        return [self.index.get(w, UNK) for w in text.split()][:MAX_LEN]


class Reviews(Dataset):
    def __init__(self, rows, vocab):
        self.rows = [(vocab.encode(r["text"]), r["label"]) for r in rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    lens = torch.tensor([len(ids) for ids, _ in batch])
    width = int(lens.max())
    out = torch.full((len(batch), width), PAD, dtype=torch.long)
    for row, (ids, _) in enumerate(batch):
        out[row, : len(ids)] = torch.tensor(ids)
    return out, lens, torch.tensor([y for _, y in batch], dtype=torch.float32)


class Classifier(nn.Module):
    def __init__(self, vocab_size, dim=48, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, 1)

    def forward(self, ids, lens):
        h, _ = self.rnn(self.emb(ids))
        mask = (torch.arange(ids.size(1))[None] < lens[:, None]).unsqueeze(-1)
        pooled = (h * mask).sum(1) / lens[:, None]
        return self.out(self.drop(pooled)).squeeze(1)


class Trainer:
    def __init__(self, model, train, valid, lr=3e-3):
        self.model, self.train_dl, self.valid_dl = model, train, valid
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.crit = nn.BCEWithLogitsLoss()
        self.seen = 0

    def step(self, ids, lens, y):
        self.opt.zero_grad()
        loss = self.crit(self.model(ids, lens), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.seen += len(y)
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        hits = n = 0
        for ids, lens, y in self.valid_dl:
            hits += ((self.model(ids, lens) > 0) == (y > 0.5)).sum().item()
            n += len(y)
        self.model.train()
        return hits / n

    def fit(self, epochs):
        t0 = time.time()
        for e in range(epochs):
            losses = [self.step(*b) for b in self.train_dl]
            print(f"epoch {e}: loss {sum(losses) / len(losses):.4f} acc {self.validate():.3f}")
        print(f"trained {self.seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    torch.manual_seed(1)
    with open(ensure("reviews") / "reviews.jsonl") as f:
        rows = [json.loads(line) for line in f]
    vocab = Vocab([r["text"] for r in rows[:2000]])
    train = DataLoader(Reviews(rows[:2000], vocab), batch_size=32, shuffle=True, collate_fn=collate, drop_last=True)
    valid = DataLoader(Reviews(rows[2000:2300], vocab), batch_size=64, collate_fn=collate)
    Trainer(Classifier(len(vocab)), train, valid).fit(2)
