"""Which key of the toy piano is it?  Log-mel + CNN on one-second wav clips."""
import csv
import time
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from make_data import ensure


def hz_to_mel(f):
    return 2595.0 * np.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_filters(sr, n_fft, n_mels):
    """Triangular mel filters, written out the way the text book has them."""
    points = mel_to_hz(np.linspace(hz_to_mel(0.0), hz_to_mel(sr / 2), n_mels + 2))
    bins = np.linspace(0, sr / 2, n_fft // 2 + 1)
    fb = np.zeros((n_mels, len(bins)), dtype=np.float32)
    for m in range(n_mels):
        left, centre, right = points[m], points[m + 1], points[m + 2]
        for k, f in enumerate(bins):
            if left <= f <= centre:
                fb[m, k] = (f - left) / (centre - left)
            elif centre < f <= right:
                fb[m, k] = (right - f) / (right - centre)
    return torch.from_numpy(fb)


class LogMel:
    def __init__(self, sr=16000, n_fft=1024, hop=256, n_mels=48):
        self.sr, self.n_fft, self.hop, self.n_mels = sr, n_fft, hop, n_mels
        self.window = torch.hann_window(n_fft)
        self.fb = mel_filters(sr, n_fft, n_mels)

    def __call__(self, x):
        spec = torch.stft(x, self.n_fft, self.hop, window=self.window, return_complex=True).abs().square()
        return torch.log(self.fb @ spec + 1e-6)


class KeyClips(Dataset):
    def __init__(self, root):
        self.root = root
        with open(root / "labels.csv") as f:
            self.rows = [(r["file"], r["label"]) for r in csv.DictReader(f)]
        self.names = sorted({label for _, label in self.rows})
        self.mel = LogMel()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        file, label = self.rows[i]
        with wave.open(str(self.root / file)) as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
        x = torch.from_numpy(pcm.astype(np.float32) / 32768.0)
        return self.mel(x)[None], self.names.index(label)


class KeyNet(nn.Sequential):
    def __init__(self, n):
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(96, n),
        )


class Experiment:
    def __init__(self, epochs=5, batch=32, seed=3):
        torch.manual_seed(seed)
        self.epochs = epochs
        self.data = KeyClips(ensure("clips"))
        self.loader = DataLoader(self.data, batch_size=batch, shuffle=True)
        self.net = KeyNet(len(self.data.names))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.loss = nn.CrossEntropyLoss()

    def step(self, x, y):
        self.opt.zero_grad()
        loss = self.loss(self.net(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        t0, n = time.time(), 0
        for e in range(self.epochs):
            losses = []
            for x, y in self.loader:
                losses.append(self.step(x, y))
                n += len(y)
            print(f"[{e + 1}/{self.epochs}] loss {np.mean(losses):.4f}")
        print(f"trained {n} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    Experiment().run()
