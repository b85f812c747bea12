"""A head trained on feature vectors held in memory, taken 256 at a time."""

import argparse
import ctypes
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

EPOCHS = 5
NUM_CLASSES = 20


def keep_freed_memory() -> None:
    """Large tensors come from the heap, and the heap is not handed back between steps (glibc only)."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def make_features(count: int) -> TensorDataset:
    """Vectors around one centre per class, as an encoder would give them."""
    labels = torch.randint(NUM_CLASSES, (count,))
    centres = torch.randn(NUM_CLASSES, 1280, generator=torch.Generator().manual_seed(1))
    return TensorDataset(0.2 * centres[labels] + torch.randn(count, 1280), labels)


def whole_batches(dataset: TensorDataset, sampler: RandomSampler | SequentialSampler) -> DataLoader:
    """Index the tensors once a batch instead of once a sample."""
    return DataLoader(dataset, sampler=BatchSampler(sampler, batch_size=256, drop_last=False), batch_size=None)


@torch.inference_mode()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = seen = 0
    for batch, targets in loader:
        right += (model(batch).argmax(dim=1) == targets).sum().item()
        seen += len(batch)
    model.train()
    return right / seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="not needed here: the features are made in memory")
    parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(0)

    training, validation = make_features(5_120), make_features(1_024)
    train_loader = whole_batches(training, RandomSampler(training))
    validation_loader = whole_batches(validation, SequentialSampler(validation))
    layers = [nn.Linear(1280, 1536), nn.GELU(), nn.Dropout(0.2), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, NUM_CLASSES)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    trained = 0
    started = time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, targets in train_loader:
            loss = F.cross_entropy(model(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            trained += len(batch)
        accuracy = evaluate(model, validation_loader)
        print(f"epoch {epoch}: loss {total / len(training):.4f} accuracy {accuracy:.3f}")
    print(f"trained {trained} samples in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
