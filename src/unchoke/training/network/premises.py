"""Whether a process on another machine can train what this one prepared: it must see the same folder and read the same inputs.

In: a `TrainingJob`, and the `Premises` of the process that made it. Out: a reason why not, or none. Everything that could fail
there is tried once before anyone trains, so that what is wrong with a machine is said, and not met in the middle.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from unchoke.core.errors import UnchokeError
from unchoke.jobs.cluster.file_transfer import SharedFolder, marked
from unchoke.machine.backend import torch_device
from unchoke.training.network.training_job import TrainingJob

_READ = 8
"""Samples that are read on trial, spread over all of them."""


@dataclass(frozen=True)
class Premises:
    """Where the process stands that prepared a training: the folder of its checkpoints, and the one that its paths count from."""

    shared: SharedFolder
    directory: Path


@contextmanager
def premises_of(job: TrainingJob) -> Iterator[Premises]:
    """What other machines compare themselves with, for as long as they may."""
    assert job.folder is not None, "processes that train together meet in a folder"
    with marked(job.folder) as shared:
        yield Premises(shared, Path.cwd())


def why_not_here(job: TrainingJob, premises: Premises, *, writes: bool = False) -> str:
    """Why this machine cannot take part in the training, "" where it can. Stands in the same directory from then on.

    Each process that takes part `writes` checkpoints if it leads.
    """
    if premises.directory.is_dir():
        os.chdir(premises.directory)
    name, folder = socket.gethostname(), premises.shared.folder
    if not premises.shared.is_seen():
        return f"{name} does not see the folder {folder}"
    if writes and not premises.shared.is_here():
        return f"{name} may not write to {folder}"
    try:
        _try_once(job)
    except UnchokeError as error:
        return f"{name} cannot train it: {error.what}: {error.why}"
    except OSError as error:
        return f"{name} cannot train it: {error}"
    return ""


def _try_once(job: TrainingJob) -> None:
    """Load the network and read some samples of every split."""
    with torch.random.fork_rng(devices=[]):
        _, source, _ = job.build(torch_device("cpu"))
    positions = np.unique(np.linspace(0, len(job.problem.sample_ids) - 1, _READ).astype(np.int64))
    source.read(positions, None)
