"""What lives on a node: one process that holds what a body needs, and answers tasks. Runs inside a Ray actor.

Everything crosses as bytes that this module packs and unpacks, so an error of a body arrives as it does from a worker process. A
node whose unchoke is another one, or that `setup` finds unfit, says so with `NodeRefused` and is not used.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pickle
import platform
import socket
import traceback
from functools import cache
from pathlib import Path
from typing import Any

from unchoke.core import listing
from unchoke.core.errors import MachineError
from unchoke.jobs.attempts import Outcome, answer, portable
from unchoke.machine.detect import usable_cores

PACKAGES = ("torch", "torchvision", "timm", "numpy", "openvino", "simplejpeg", "Pillow", "ray")
"""What the numbers of a node may depend on."""


class NodeRefused(MachineError):  # noqa: N818 (what happened, as `WorkerDied`)
    """This node is not used, and why; the others are."""


class Host:
    """The body of an actor: `ready` once, then `run` for each task."""

    def __init__(self, parcel: bytes, unchoke_digest: str) -> None:
        self._parcel, self._digest = parcel, unchoke_digest
        self._body: Any = None

    def ready(self) -> bytes:
        """Unpack the body and set it up; the outcome's value is what `setup` handed back, for whoever packs the tasks."""
        try:
            _refuse_other_source(self._digest)
            self._body, setup, setup_args = pickle.loads(self._parcel)
            self._parcel = b""
            found = setup(*setup_args) if setup is not None else None
        except (Exception, SystemExit) as error:
            return pickle.dumps(Outcome(None, error=portable(error), traceback_text=traceback.format_exc()))
        return pickle.dumps(Outcome(None, value=found))

    def run(self, message: bytes) -> bytes:
        """The outcome of one task."""
        return answer(self._body, message)

    def process(self) -> tuple[str, int]:
        """Which machine and which process this is."""
        return socket.gethostname(), os.getpid()


def assigned_cores() -> int:
    """Cores that the cluster gave the process this runs in, no more than there are."""
    from unchoke.jobs.cluster.connection import import_ray

    given = import_ray().get_runtime_context().get_assigned_resources().get("CPU", 0)
    return max(1, min(int(given), usable_cores()))


@cache
def source_digest() -> str:
    """A digest of unchoke's own source: two machines with the same one run the same code."""
    root = Path(__file__).parents[1]
    state = hashlib.sha256()
    for file in listing.walk(root):
        if file.relative.endswith((".py", ".toml")):
            state.update(file.relative.encode() + b"\0" + Path(file.path).read_bytes() + b"\0")
    return state.hexdigest()[:16]


def versions() -> dict[str, str]:
    """What is installed here of what numbers may depend on."""
    found = {"python": platform.python_version(), "unchoke": source_digest()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def _refuse_other_source(digest: str) -> None:
    if digest != (here := source_digest()):
        raise NodeRefused(
            f"{socket.gethostname()} has another unchoke",
            code="node-other-source",
            why=f"its source has the digest {here}, the driver's {digest}: they might compute other numbers",
            try_="install the same version there: pip install 'unchoke[ray]'",
        )
