"""What a command will need of a network, loaded while its files are still being read.

In: a session. Out: steps for a `HeadStart`, whose result is the encoder that `open_encoder` would load. A card is made ready by
one pass of zeros, because the first pass of a process loads kernels for seconds. Nothing here changes a number.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from unchoke.core.head_start import Steps
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.cut import END, NONE
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.machine.backend import autocast, empty_cache, is_cpu, synchronize, torch_device, torch_dtype
from unchoke.runs.session import Session

_TRAINED_AT_ONCE = 32


def load_ahead(session: Session) -> Steps[Encoder]:
    """Libraries, the encoder with its weights, and the first pass on a card."""
    prepare_torchvision()
    import timm  # noqa: F401

    yield "networks"
    settings = session.settings
    weights = Path(settings.weights) if settings.weights else None
    encoder = load_encoder(settings.encoder, weights=weights, input_px=settings.input_px)
    yield "encoder"
    device = torch_device(session.policy)
    if is_cpu(device) or settings.memory is not None:  # a limit is kept from the first byte on
        return encoder
    if settings.cut != NONE:
        warm_up(encoder, device, batch=session.policy.encode_batch)
        yield "first pass"
    if settings.cut != END:
        warm_up(encoder, device, batch=settings.batch_size or _TRAINED_AT_ONCE, trained_in=session.policy.train_dtype)
        yield "first step"
    return encoder


def warm_up(encoder: Encoder, device: torch.device, *, batch: int, trained_in: str | None = None) -> None:
    """Run a copy of the encoder once over zeros, forwards, and with `trained_in` (a type's name) backwards too."""
    module = copy.deepcopy(encoder.runnable()).to(device)
    pixels = torch.zeros((batch, *encoder.input_shape), dtype=torch.uint8, device=device)
    if trained_in is None:
        with torch.inference_mode():
            module(pixels)
    else:
        module.train().requires_grad_(True)
        with autocast(device, torch_dtype(trained_in)):
            loss = module(pixels).float().square().mean()
        loss.backward()
    synchronize(device)
    del module, pixels
    empty_cache(device)
