"""What an epoch of training a network, or its last blocks, takes here, before anything is extracted for it.

In: a session with the settings of that training, and what is learnt. Out: seconds of an epoch and its evaluation, from a few real
steps over noise: how a training step compares with a pass of the frozen part differs tenfold between machines and engines, so no
rule of thumb keeps a promise of minutes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from unchoke.core.events import ignore
from unchoke.features.cut import cut_network
from unchoke.features.encoders import bare_encoder
from unchoke.machine.backend import torch_device
from unchoke.runs.session import Session
from unchoke.training.network.loop_choices import TrainedPart, choose_loop
from unchoke.training.network.memory_trial import MemoryTrial
from unchoke.training.network.photo_blueprint import PhotoBlueprint
from unchoke.training.network.photo_subject import network_spec, noise_source, targets_of
from unchoke.training.problem import LearningTask

_STEPS, _LONG_ENOUGH_S = 6, 3.0


def measure_epoch_s(session: Session, learnable: LearningTask) -> float:
    """Seconds of one epoch with the settings of `session`; nothing is told, kept or chosen."""
    settings, problem = session.settings, learnable.problem
    encoder = bare_encoder(settings.encoder, input_px=settings.input_px)
    cut = cut_network(encoder, settings.cut, verify=False)
    loop = choose_loop(replace(session, on_event=ignore, choices=[]), problem, TrainedPart.of(encoder, settings.cut))
    batch = min(loop.batch_size, len(problem.positions("train")))
    loop = replace(loop, batch_size=batch, sub_batch=min(loop.sub_batch, batch), eval_batch=batch)
    network, source = network_spec(settings, encoder), noise_source(settings, encoder, cut)
    blueprint = PhotoBlueprint(network, source, targets_of(settings, learnable), learnable.inputs)
    trial = MemoryTrial(blueprint.noise(batch), loop, str(torch_device(session.policy)), problem.kind, problem.names)
    threads = torch.get_num_threads()
    torch.set_num_threads(loop.threads)
    try:
        with torch.random.fork_rng(devices=[]):
            rehearsal = trial.rehearse(loop)
            step_s = rehearsal.train_steps(_STEPS, longest_s=_LONG_ENOUGH_S) * math.ceil(batch / loop.sub_batch)
            judge_s = rehearsal.evaluate(batch, 2)
    finally:
        torch.set_num_threads(threads)
    num_train, num_val = (len(problem.positions(split)) for split in ("train", "val"))
    return step_s * math.ceil(num_train / batch) + judge_s * math.ceil(num_val / batch)
