"""Two-layer GCN (Kipf & Welling) on a citation graph, everything in plain torch."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_data import ensure


def load_graph():
    root = ensure("papers")
    z = np.load(root / "nodes.npz")
    x = torch.from_numpy(z["x"])
    y = torch.from_numpy(z["y"])
    edges = torch.from_numpy(np.loadtxt(root / "edges.csv", dtype=np.int64, delimiter=","))
    n = len(y)
    adj = torch.zeros(n, n)
    adj[edges[:, 0], edges[:, 1]] = 1
    adj[edges[:, 1], edges[:, 0]] = 1
    g = torch.Generator().manual_seed(0)
    perm = torch.randperm(n, generator=g)
    return x, y, adj, perm[: n // 2], perm[n // 2:]


def normalise(adj):
    a = adj + torch.eye(len(adj))
    d = torch.diag(a.sum(1).pow(-0.5))
    return d @ a @ d


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.lin = nn.Linear(cin, cout, bias=False)

    def forward(self, x, adj):
        return adj @ self.lin(x)


class GCN(nn.Module):
    def __init__(self, cin, hidden, classes):
        super().__init__()
        self.c1 = GraphConv(cin, hidden)
        self.c2 = GraphConv(hidden, hidden)
        self.c3 = GraphConv(hidden, classes)

    def forward(self, x, adj):
        a_hat = normalise(adj)
        x = F.dropout(F.relu(self.c1(x, a_hat)), 0.5, self.training)
        x = F.dropout(F.relu(self.c2(x, a_hat)), 0.5, self.training)
        return self.c3(x, a_hat)


torch.manual_seed(4)
x, y, adj, train_idx, test_idx = load_graph()
model = GCN(x.shape[1], 384, int(y.max()) + 1)
opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

EPOCHS = 50
start = time.perf_counter()
for epoch in range(1, EPOCHS + 1):
    model.train()
    opt.zero_grad()
    loss = F.cross_entropy(model(x, adj)[train_idx], y[train_idx])
    loss.backward()
    opt.step()
    if epoch % 10 == 0:
        model.eval()
        with torch.no_grad():
            acc = (model(x, adj)[test_idx].argmax(1) == y[test_idx]).float().mean().item()
        print(f"epoch {epoch:3d} loss {loss.item():.3f} test acc {acc:.3f}")
print(f"trained {EPOCHS * len(train_idx)} samples in {time.perf_counter() - start:.2f} s")
