"""The plain way, as a careful notebook has it: torchvision's ImageFolder, a DataLoader with all cores but one, and timm.

In: class folders and a device. Out: images per second, pass by pass, in one process: the first pass has what is loaded only once.
On a card: bf16 autocast, channels_last, pinned memory, fused AdamW. Both sides use the same weights.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.encoders import load_encoder
from unchoke.machine.backend import empty_cache, is_cpu, torch_device
from unchoke.machine.detect import detect_machine, usable_cores
from unchoke.machine.policy import choose_policy


def device_of(name: str | None) -> torch.device:
    """The device of that name, or the one unchoke chooses here."""
    return torch_device(name or choose_policy(detect_machine()).device)


def let_go(device: torch.device) -> None:
    """After a pass: workers have ended, and what the allocator kept is free for whoever is measured next."""
    gc.collect()
    empty_cache(device)


def plain_features(photos: Path, device: torch.device, *, passes: int = 2, batch: int = 64) -> list[float]:
    """Files to features with timm's own evaluation transform, batches of 64."""
    prepare_torchvision()
    from timm.data import create_transform, resolve_model_data_config
    from torchvision.datasets import ImageFolder

    model = load_encoder().module.to(device, memory_format=torch.channels_last)
    dataset = ImageFolder(str(photos), transform=create_transform(**resolve_model_data_config(model)))
    loader = _loader(dataset, batch, device, shuffle=False)
    rates = []
    for _ in range(passes):
        started = time.perf_counter()
        features = []
        with torch.inference_mode(), _autocast(device):
            for images, _targets in loader:
                features.append(model(_sent(images, device)).float().cpu())
        torch.cat(features).numpy()
        rates.append(len(dataset) / (time.perf_counter() - started))
    return rates


def plain_training(photos: Path, device: torch.device, *, epochs: int = 2, batch: int = 32) -> list[float]:
    """A loop over the whole network with a new linear head: random crops and flips, AdamW; nothing is evaluated."""
    prepare_torchvision()
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    encoder = load_encoder()
    preprocess = encoder.spec.preprocess
    varied = transforms.Compose(
        [
            transforms.RandomResizedCrop(preprocess.size_px, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(preprocess.mean, preprocess.std),
        ]
    )
    dataset = ImageFolder(str(photos), transform=varied)
    loader = _loader(dataset, batch, device, shuffle=True)
    model = nn.Sequential(encoder.module, nn.Linear(encoder.spec.dim, len(dataset.classes)))
    model = model.to(device, memory_format=torch.channels_last).requires_grad_(True).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=not is_cpu(device))
    return [_epoch(model, loader, optimizer, device) for _ in range(epochs)]


def _epoch(model: nn.Module, loader: DataLoader[Any], optimizer: torch.optim.Optimizer, device: torch.device) -> float:
    """Images per second of one epoch; the loss is read once, at its end, and waits for the device."""
    started, seen = time.perf_counter(), 0
    loss = torch.zeros(())
    for images, targets in loader:
        with _autocast(device):
            loss = nn.functional.cross_entropy(model(_sent(images, device)), targets.to(device, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seen += len(images)
    loss.item()
    return seen / (time.perf_counter() - started)


def _loader(dataset: Any, batch: int, device: torch.device, *, shuffle: bool) -> DataLoader[Any]:
    workers = max(1, usable_cores() - 1)
    return DataLoader(
        dataset, batch, shuffle=shuffle, num_workers=workers, persistent_workers=True, pin_memory=not is_cpu(device)
    )


def _sent(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    return images.to(device, memory_format=torch.channels_last, non_blocking=True)


def _autocast(device: torch.device) -> torch.autocast:
    """bf16 on a card; on a CPU float32, which a plain loop has there."""
    return torch.autocast(device.type, torch.bfloat16, enabled=not is_cpu(device))
