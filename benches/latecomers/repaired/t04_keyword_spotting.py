"""Keyword spotting on one second clips; batches are augmented by a background thread."""
import threading
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
from scipy.io import wavfile

from make_data import ensure

BATCH, EPOCHS, DEPTH, LOG_EVERY = 20, 34, 2, 34
WINDOW = np.hanning(400).astype(np.float32)


def load_clips(folder):
    xs, ys = [], []
    for p in sorted(folder.glob("*.wav")):
        _, wav = wavfile.read(p)
        xs.append(wav.astype(np.float32) / 32768)
        ys.append(int(p.name.split("_")[0]))
    return log_spectrogram(np.stack(xs)), np.array(ys)


def log_spectrogram(batch):
    frames = np.lib.stride_tricks.sliding_window_view(batch, 400, axis=1)[:, ::200]
    spec = np.abs(np.fft.rfft(frames * WINDOW, n=512, axis=-1))[..., :80]
    return np.log1p(spec).astype(np.float32).transpose(0, 2, 1)


def spec_augment(batch, rng):
    gain = rng.uniform(0.8, 1.2, (len(batch), 1, 1)).astype(np.float32)
    out = batch * gain
    for s in out:
        f, t = rng.integers(0, 72), rng.integers(0, s.shape[1] - 10)
        s[f:f + 8] = 0
        s[:, t:t + 10] = 0
    return out


class Prefetcher:
    """Keeps up to `depth` ready batches in a buffer filled by a thread."""

    def __init__(self, x, y, batch, depth, epochs, seed=0):
        self.x, self.y, self.batch, self.depth, self.epochs = x, y, batch, depth, epochs
        self.rng = np.random.default_rng(seed)
        self.buffer = deque()
        self.ready = threading.Semaphore(0)
        self.room = threading.Semaphore(depth)
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _batches(self):
        for _ in range(self.epochs):
            order = self.rng.permutation(len(self.x))
            for i in range(0, len(order), self.batch):
                yield order[i:i + self.batch]

    def _fill(self):
        for idx in self._batches():
            item = torch.from_numpy(spec_augment(self.x[idx], self.rng)), torch.from_numpy(self.y[idx])
            self.room.acquire()
            self.buffer.append(item)
            self.ready.release()
        self.buffer.append(None)
        self.ready.release()

    def __iter__(self):
        while True:
            self.ready.acquire()
            item = self.buffer.popleft()
            self.room.release()
            if item is None:
                return
            yield item


def make_model(n_classes):
    return nn.Sequential(
        nn.Conv1d(80, 48, 5, padding=2), nn.BatchNorm1d(48), nn.ReLU(),
        nn.Conv1d(48, 64, 5, padding=2, stride=2), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Conv1d(64, 64, 3, padding=1), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Conv1d(64, 64, 3, padding=1), nn.BatchNorm1d(64), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, n_classes),
    )


def main():
    torch.manual_seed(0)
    x, y = load_clips(ensure("clips"))
    model = make_model(6)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    crit = nn.CrossEntropyLoss(label_smoothing=0.05)
    seen, t0 = 0, time.time()
    for step, (xb, yb) in enumerate(Prefetcher(x, y, BATCH, DEPTH, EPOCHS), 1):
        logits = model(xb)
        loss = crit(logits, yb)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        seen += len(xb)
        if step % LOG_EVERY == 0:
            acc = (logits.argmax(1) == yb).float().mean()
            print(f"step {step}: loss {loss.item():.4f} acc {acc.item():.3f}")
    print(f"trained {seen} samples in {time.time() - t0:.2f} s")


if __name__ == "__main__":
    main()
