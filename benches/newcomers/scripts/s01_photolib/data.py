import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class PhotoFolder(Dataset):
    """root/class_name/xxx.jpg"""

    def __init__(self, root, size=64, train=True):
        self.root = Path(root)
        self.size = size
        self.train = train
        self.classes = sorted(d.name for d in self.root.iterdir() if d.is_dir())
        to_idx = {c: i for i, c in enumerate(self.classes)}
        self.samples = [(str(p), to_idx[p.parent.name]) for p in sorted(self.root.glob("*/*.jpg"))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        path, label = self.samples[i]
        img = Image.open(path).convert("RGB").resize((self.size, self.size), Image.BILINEAR)
        if self.train and random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div_(255.0)
        return (x - 0.45) / 0.25, label


def _seed(worker_id):
    random.seed(torch.initial_seed() % 2**32)


def make_loader(dataset, batch_size, workers=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    # fork + opencv used to dead-lock on our server, spawn is the safe choice
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        multiprocessing_context="spawn",
        worker_init_fn=_seed,
        generator=g,
    )
