"""What a command will need of a network, loaded while its files are still being read.

In: a session. Out: steps for a `Prefetch`, whose result is the encoder that `open_encoder` would load. A card is made ready by
one pass of zeros, because the first pass of a process loads kernels for seconds. Nothing here changes a number.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Thread

import numpy as np
import torch

from unchoke.core.errors import MachineError
from unchoke.core.prefetch import Steps
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.choose_encoder import is_open, stronger_encoders
from unchoke.features.cut import NONE, is_all_frozen, set_batch_norm_eval
from unchoke.features.encoders import Encoder, load_encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.prepare_engine import recall_encoder
from unchoke.machine.backend import autocast, empty_cache, is_cpu, synchronize, torch_device, torch_dtype, torch_memory_format
from unchoke.machine.memory.oom import out_of_memory
from unchoke.machine.policy import Policy
from unchoke.runs.session import Session


def load_ahead(session: Session) -> Steps[Encoder | None]:
    """Libraries, the encoder with its weights, and the first pass on a card; no encoder where its features are likely there."""
    if is_all_frozen(session.settings.cut) and recall_encoder(session) is not None:
        return None
    prepare_torchvision()
    yield "networks"
    if session.settings.minutes is None and is_open(session) and stronger_encoders():
        return None  # which one it will be is not known before photos are counted
    settings = session.settings
    weights = Path(settings.weights) if settings.weights else None
    encoder = load_encoder(settings.encoder, weights=weights, input_px=settings.input_px)
    yield "encoder"
    device = torch_device(session.policy)
    if is_cpu(device) or settings.memory is not None:  # a limit is kept from the first byte on
        return encoder
    if settings.cut != NONE:
        with _memory_may_lack(device):
            warm_up_engines(session, encoder, device)
        yield "first pass"
    if not is_all_frozen(settings.cut):
        compiler = Thread(target=import_module, args=("torch._dynamo",))  # torch's optimizers load it in their first step
        compiler.start()
        with _memory_may_lack(device):
            warm_up_training(encoder, session.policy, device)
        compiler.join()
        yield "first step"
    return encoder


@contextmanager
def _memory_may_lack(device: torch.device) -> Iterator[None]:
    """What runs ahead is no promise: where memory lacks for it, the plan that comes later knows what fits."""
    try:
        yield
    except (RuntimeError, MemoryError, MachineError) as error:
        if out_of_memory(error) is None and getattr(error, "code", "") != "out-of-memory":
            raise
    empty_cache(device)


def warm_up_engines(session: Session, encoder: Encoder, device: torch.device) -> None:
    """Run the engines that will be compared, once over zeros each."""
    policy, pixels = session.policy, np.zeros((1, *encoder.input_shape), np.uint8)
    for label in dict.fromkeys([*policy.engine[:1], "torch:f32"]):
        engine = TorchEngine(
            encoder,
            device=device,
            precision=label.partition(":")[2],
            batch=policy.encode_batch,
            channels_last=policy.memory_format == "channels_last",
        )
        engine.encode(pixels)


def warm_up_training(encoder: Encoder, policy: Policy, device: torch.device) -> None:
    """Run a copy of the encoder over one sample of zeros, forwards and backwards, laid out and rounded as it will be trained."""
    module = copy.deepcopy(encoder.runnable()).to(device)
    module.to(memory_format=torch_memory_format(policy))  # type: ignore[call-overload]
    set_batch_norm_eval(module.train().requires_grad_(True))  # one sample has no statistics
    pixels = torch.zeros((1, *encoder.input_shape), dtype=torch.uint8, device=device)
    with autocast(device, torch_dtype(policy.train_dtype)):
        loss = module(pixels).float().square().mean()
    loss.backward()
    synchronize(device)
