"""Review sentiment: batches of similar length, padded to the longest of the batch."""
import argparse
import csv
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

from make_data import ensure


class Reviews(Dataset):
    def __init__(self, path, limit):
        with open(path) as f:
            rows = list(csv.DictReader(f))[:limit]
        vocab = {"<pad>": 0}
        self.ids = [torch.tensor([vocab.setdefault(w, len(vocab)) for w in r["text"].split()]) for r in rows]
        self.y = torch.tensor([int(r["label"]) for r in rows])
        self.vocab_size = len(vocab)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.y[i]


class Buckets(Sampler):
    """Sort by length once; shuffle the order of the batches every epoch."""

    def __init__(self, lengths, batch):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i:i + batch] for i in range(0, len(order), batch)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        random.shuffle(self.batches)
        return iter(self.batches)


def collate(items):
    ids, y = zip(*items)
    return pad_sequence(ids, batch_first=True), torch.stack(y)


class Classifier(nn.Module):
    def __init__(self, vocab, d=128, layers=3):
        super().__init__()
        self.tok = nn.Embedding(vocab, d, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(1, 128, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(d, 2)

    def forward(self, ids):
        pad = ids == 0
        h = self.enc(self.tok(ids) + self.pos[:, : ids.shape[1]], src_key_padding_mask=pad)
        h = h.masked_fill(pad[..., None], 0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.out(h)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()
    random.seed(2)
    torch.manual_seed(2)
    data = Reviews(ensure("reviews") / "reviews.csv", 1280)
    loader = DataLoader(data, batch_sampler=Buckets([len(i) for i in data.ids], args.batch), collate_fn=collate)
    model = Classifier(data.vocab_size)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ce = nn.CrossEntropyLoss()
    t0, n = time.time(), 0
    for epoch in range(args.epochs):
        hits = 0
        for ids, y in loader:
            logits = model(ids)
            loss = ce(logits, y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            hits += (logits.argmax(1) == y).sum().item()
            n += len(y)
        print(f"epoch {epoch} train acc {hits / len(data):.3f}")
    print(f"trained {n} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
