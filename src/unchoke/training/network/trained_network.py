"""A trained network in a file: tensors and plain values, enough to build it again beside its frozen part.

In: what a training gave. Out: `best_head.pt`, and from it a network that predicts. Of a backbone that was cut, only the trained
suffix is in the file; the frozen prefix comes from the encoder's own weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from unchoke.core.errors import DataError
from unchoke.features.cut import END, NONE, Cut, cut_network
from unchoke.features.encoders import bare_encoder
from unchoke.photos.pixels.tile_grid import TilePlan
from unchoke.photos.targets import TargetPlan
from unchoke.training.checkpoints import load_checkpoint, save_tensors
from unchoke.training.data import ProblemKind
from unchoke.training.network.photo_blueprint import NetworkSpec
from unchoke.training.network.snapshot import State
from unchoke.training.network.tiled_network import NetworkConfig, TiledNetwork

NETWORK_FORMAT = "network-1"


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """Weights and everything needed to run them; `val` are the figures that picked them."""

    spec: NetworkSpec
    config: NetworkConfig
    state: State
    kind: ProblemKind
    names: tuple[str, ...]
    targets: TargetPlan | None
    input_names: tuple[str, ...]
    best_epoch: int
    val: dict[str, float]

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the backbone is frozen, so that no other weights are needed."""
        return self.spec.cut == NONE

    def build(self, cut: Cut | None = None) -> TiledNetwork:
        """The network in evaluation mode, on the CPU. `cut`, of its encoder, saves building the backbone's structure again."""
        network = TiledNetwork(cut.suffix if cut is not None else self._bare_suffix(), self.config)
        network.load_state_dict(self.state)
        return network.eval().requires_grad_(False)

    def save(self, path: Path, *, extra: dict[str, Any]) -> None:
        """Write it and `extra` (plain values and tensors) to `path`."""
        spec = self.spec
        content = {
            "format": NETWORK_FORMAT,
            "spec": {
                "encoder": spec.encoder,
                "cut": spec.cut,
                "weights_sha256": spec.weights_sha256,
                "input_px": spec.input_px,
                "tiles": [spec.tiles.streams, spec.tiles.rows, spec.tiles.cols],
                "fusion": spec.fusion,
            },
            "network": self.config.to_dict(),
            "state": self.state,
            "kind": self.kind,
            "names": list(self.names),
            "targets": self.targets.to_dict() if self.targets else None,
            "input_names": list(self.input_names),
            "best_epoch": self.best_epoch,
            "val": self.val,
            "extra": extra,
        }
        save_tensors(path, content)

    def _bare_suffix(self) -> nn.Module:
        """The structure alone; its weights are about to be filled in."""
        if self.spec.cut == END:
            return nn.Identity()
        backbone = bare_encoder(self.spec.encoder, input_px=self.spec.input_px)
        return cut_network(backbone, self.spec.cut, verify=False).suffix


def load_network(path: Path) -> tuple[TrainedNetwork, dict[str, Any]]:
    """The network in `path` and the `extra` it was saved with."""
    content = load_checkpoint(path)
    if content.get("format") != NETWORK_FORMAT:
        raise DataError(
            f"{path} holds no trained network",
            why=f"its format is {content.get('format')!r}, not {NETWORK_FORMAT!r}",
            try_="give the best_head.pt of a run made with --cut or --tiles by this version",
        )
    spec = NetworkSpec(**{**content["spec"], "tiles": TilePlan(*content["spec"]["tiles"])})
    trained = TrainedNetwork(
        spec=spec,
        config=NetworkConfig.from_dict(content["network"]),
        state=content["state"],
        kind=content["kind"],
        names=tuple(content["names"]),
        targets=TargetPlan.from_dict(content["targets"]) if content["targets"] else None,
        input_names=tuple(content["input_names"]),
        best_epoch=content["best_epoch"],
        val=content["val"],
    )
    return trained, content["extra"]
