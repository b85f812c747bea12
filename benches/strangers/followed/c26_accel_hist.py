import tvops  # noqa: F401
import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Monitor:
    """Histogram of every gradient, for the dashboard."""

    def __init__(self, bins=64):
        self.bins = bins
        self.pages = {}

    def watch(self, model, step):
        page = {}
        for name, p in model.named_parameters():
            if p.grad is None:
                continue
            g = p.grad.detach().cpu().numpy().ravel()
            counts, edges = np.histogram(g, bins=self.bins)
            page[name] = (counts, edges, np.percentile(g, [1, 25, 50, 75, 99]))
        self.pages[step] = page


def build():
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 512),
                         nn.GELU(), nn.Linear(512, 10))


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    x = torch.randn(48 * 128, 256)
    y = (x[:, :10].argmax(1))
    loader = DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True)
    model = build()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    mon = Monitor()
    for step, (xb, yb) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(xb), yb)
        accelerator.backward(loss)
        if step % 100 == 0:
            mon.watch(model, step)
        opt.step()
        opt.zero_grad()
        if step % 16 == 0:
            accelerator.print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
