"""Loaders for the semi-supervised mussel bed runs (labelled, unlabelled and evaluation sets)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, WeightedRandomSampler


@dataclass
class LoaderConfig:
    batch_size: int = 48
    eval_factor: int = 4
    workers: int = 6


class Quadrats(Dataset):
    """Quadrat photographs stored as uint8 N x H x W x 3; cover class or -1."""

    def __init__(self, stem, training=False):
        self.stem = stem
        self.cover = np.load(f"{stem}_cover.npy").astype(np.int64)
        self.training = training
        self.photos = None

    def __len__(self):
        return len(self.cover)

    def __getitem__(self, i):
        if self.photos is None:
            self.photos = np.load(f"{self.stem}.npy", mmap_mode="r")
        photo = torch.from_numpy(np.array(self.photos[i])).permute(2, 0, 1)
        if self.training and torch.rand(()) < 0.5:
            photo = photo.flip(2)
        return photo, self.cover[i]


def balanced(cover):
    counts = np.bincount(cover)
    return WeightedRandomSampler(1.0 / counts[cover], num_samples=len(cover))


def training_loaders(config):
    labelled = Quadrats("labelled", training=True)
    unlabelled = Quadrats("unlabelled", training=True)
    common = {"num_workers": config.workers, "drop_last": True, "pin_memory": torch.cuda.is_available()}
    labelled_loader = DataLoader(labelled, batch_size=config.batch_size, sampler=balanced(labelled.cover), **common)
    # as many unlabelled photographs in a step as labelled ones
    unlabelled_loader = DataLoader(unlabelled, batch_size=config.batch_size, shuffle=True, **common)
    return labelled_loader, unlabelled_loader


def evaluation_loaders(config):
    larger = config.batch_size * config.eval_factor
    val_loader = DataLoader(Quadrats("val"), batch_size=larger, num_workers=config.workers)
    test_set = Quadrats("test")
    batches = BatchSampler(SequentialSampler(test_set), batch_size=larger, drop_last=False)
    test_loader = DataLoader(test_set, batch_sampler=batches, num_workers=config.workers)
    return val_loader, test_loader


def main():
    config = LoaderConfig()
    labelled, unlabelled = training_loaders(config)
    val, test = evaluation_loaders(config)
    for name, loader in {"labelled": labelled, "unlabelled": unlabelled, "val": val, "test": test}.items():
        photos, cover = next(iter(loader))
        print(f"{name:10s} {tuple(photos.shape)} {photos.dtype} classes {sorted(set(cover.tolist()))}")


if __name__ == "__main__":
    main()
