"""DCGAN on 32x32 glyphs, with a Frechet distance to see whether it gets anywhere."""
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import linalg
from torch import nn

from make_data import ensure

Z, BATCH, STEPS, EVAL_EVERY = 64, 64, 60, 10


def read_folder(folder):
    imgs = [np.asarray(Image.open(p)) for p in sorted(Path(folder).glob("*.png"))]
    return torch.from_numpy(np.stack(imgs)).float().div(127.5).sub(1).unsqueeze(1)


def generator(w=32):
    return nn.Sequential(
        nn.ConvTranspose2d(Z, 4 * w, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * w), nn.ReLU(True),
        nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * w), nn.ReLU(True),
        nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(True),
        nn.ConvTranspose2d(w, 1, 4, 2, 1), nn.Tanh(),
    )


def discriminator(w=24):
    return nn.Sequential(
        nn.Conv2d(1, w, 4, 2, 1), nn.LeakyReLU(0.2, True),
        nn.Conv2d(w, 2 * w, 4, 2, 1), nn.BatchNorm2d(2 * w), nn.LeakyReLU(0.2, True),
        nn.Conv2d(2 * w, 4 * w, 4, 2, 1), nn.BatchNorm2d(4 * w), nn.LeakyReLU(0.2, True),
        nn.Conv2d(4 * w, 1, 4), nn.Flatten(0),
    )


def feature_net():
    g = torch.Generator().manual_seed(1234)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    ).eval()
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=g) * (2.0 / max(p[0].numel(), 1)) ** 0.5
    return net


class Frechet:
    def __init__(self, real_folder, n_fake=256):
        self.real_folder = real_folder
        self.n_fake = n_fake
        self.net = feature_net()
        self.real_stats = None

    @torch.no_grad()
    def stats(self, images):
        f = torch.cat([self.net(b) for b in images.split(200)]).double().numpy()
        return f.mean(0), np.cov(f, rowvar=False)

    @torch.no_grad()
    def __call__(self, gen):
        gen.eval()
        fake = gen(torch.randn(self.n_fake, Z, 1, 1))
        gen.train()
        if self.real_stats is None:
            self.real_stats = self.stats(read_folder(self.real_folder))
        mu_r, cov_r = self.real_stats
        mu_f, cov_f = self.stats(fake)
        root = linalg.sqrtm(cov_r @ cov_f).real
        return float(((mu_r - mu_f) ** 2).sum() + np.trace(cov_r + cov_f - 2 * root))


def main():
    torch.manual_seed(21)
    folder = ensure("glyphs")
    real = read_folder(folder)
    G, D = generator(), discriminator()
    og = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999))
    od = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH), torch.zeros(BATCH)
    frechet = Frechet(folder)

    t0 = time.time()
    for step in range(1, STEPS + 1):
        x = real[torch.randint(len(real), (BATCH,))]
        fake = G(torch.randn(BATCH, Z, 1, 1))

        d_loss = bce(D(x), ones) + bce(D(fake.detach()), zeros)
        od.zero_grad()
        d_loss.backward()
        od.step()

        D.requires_grad_(False)
        g_loss = bce(D(fake), ones)
        og.zero_grad()
        g_loss.backward()
        og.step()
        D.requires_grad_(True)

        if step % EVAL_EVERY == 0:
            print(f"step {step}: D {d_loss.item():.3f} G {g_loss.item():.3f} FD {frechet(G):.3f}")
    print(f"trained {STEPS * BATCH} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
