"""word2vec, skip-gram with negative sampling."""
import random
import time
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_data import ensure

WINDOW, NEG, BATCH, DIM = 3, 6, 256, 64
MAX_STEPS = 450

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)

sentences = [line.split() for line in open(ensure("corpus") / "corpus.txt")]
counts = Counter(w for s in sentences for w in s)
words = [w for w, _ in counts.most_common()]
stoi = {w: i for i, w in enumerate(words)}
ids = [[stoi[w] for w in s] for s in sentences]
freq = np.array([counts[w] for w in words], dtype=np.float64) ** 0.75
noise = freq / freq.sum()


def pairs():
    """endless stream of (centre, context)"""
    while True:
        order = list(range(len(ids)))
        random.shuffle(order)
        for s in order:
            sent = ids[s]
            for i, c in enumerate(sent):
                for j in range(max(0, i - WINDOW), min(len(sent), i + WINDOW + 1)):
                    if j != i:
                        yield c, sent[j]


def batches():
    centre, context, negs = [], [], []
    for c, o in pairs():
        centre.append(c)
        context.append(o)
        negs.append(np.random.choice(len(words), size=NEG, p=noise))
        if len(centre) == BATCH:
            yield torch.tensor(centre), torch.tensor(context), torch.from_numpy(np.stack(negs))
            centre, context, negs = [], [], []


class SkipGram(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.inp = nn.Embedding(n, dim, sparse=True)
        self.out = nn.Embedding(n, dim, sparse=True)
        nn.init.uniform_(self.inp.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.out.weight)

    def forward(self, centre, context, negs):
        v = self.inp(centre)
        pos = (v * self.out(context)).sum(-1)
        neg = torch.bmm(self.out(negs), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()


model = SkipGram(len(words), DIM)
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.01)

start = time.time()
running = 0.0
for step, (centre, context, negs) in enumerate(batches(), 1):
    optimizer.zero_grad()
    loss = model(centre, context, negs)
    loss.backward()
    optimizer.step()
    running += loss.item()
    if step % 150 == 0:
        print(f"step {step} loss {running / 150:.4f} vocab {len(words)}")
        running = 0.0
    if step == MAX_STEPS:
        break
print(f"trained {step * BATCH} samples in {time.time() - start:.2f} s")
