from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small_training import NAMES, SIZE_PX, Small, encoder, small
from unchoke.core.errors import DataError
from unchoke.features.cut import cut_network
from unchoke.photos.pixels.tile_grid import TilePlan
from unchoke.training.checkpoints import save_tensors
from unchoke.training.network.loop_config import Finetuned
from unchoke.training.network.photo_blueprint import NetworkSpec
from unchoke.training.network.trained_network import TrainedNetwork, load_network

KINDS: dict[str, dict[str, Any]] = {
    "a block": {"cut": "-1"},
    "the whole network": {"cut": "none", "num_train": 12},
    "tiles of fixed features": {"cut": "end", "tiles": TilePlan(2, 1, 2), "kind": "values"},
    "convolutions and extra columns": {"name": "test_efficientnet", "cut": "-2", "num_inputs": 2, "kind": "values"},
}


def trained(options: dict[str, Any]) -> tuple[Small, Finetuned, TrainedNetwork]:
    made = small(**options)
    done = made.train(epochs=1)
    spec = NetworkSpec(options.get("name", "test_vit"), options["cut"], input_px=SIZE_PX, tiles=options.get("tiles", TilePlan()))
    network = TrainedNetwork(
        spec=spec,
        config=made.network.config,
        state=done.state,
        kind=made.problem.kind,
        names=made.problem.names,
        targets=made.objective.plan,
        input_names=("NDVI", "height")[: options.get("num_inputs", 0)],
        best_epoch=done.best_epoch,
        val=done.val,
    )
    return made, done, network


def outputs(made: Small, network: torch.nn.Module, split: str) -> np.ndarray:
    positions = made.problem.positions(split)
    x = made.source.prepare(made.source.read(positions, None), positions, None)
    inputs = None if made.inputs is None else torch.from_numpy(made.inputs[positions])
    with torch.inference_mode():
        return np.asarray(network(x, inputs))


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_read_from_its_file_gives_the_outputs_of_the_training(kind, tmp_path):
    made, done, network = trained(KINDS[kind])
    network.save(tmp_path / "best_head.pt", extra={"temperature": 1.5})
    found, extra = load_network(tmp_path / "best_head.pt")
    assert extra == {"temperature": 1.5}
    for name in ("spec", "config", "kind", "names", "targets", "input_names", "best_epoch", "val"):
        assert getattr(found, name) == getattr(network, name), name
    built = found.build()
    assert not built.training
    assert not any(parameter.requires_grad for parameter in built.parameters())
    for split in ("val", "test"):
        np.testing.assert_allclose(outputs(made, built, split), done.outputs[split], rtol=1e-5, atol=1e-6)


def test_a_cut_that_is_there_already_is_filled_instead_of_building_another(tmp_path):
    made, done, network = trained(KINDS["a block"])
    cut = cut_network(encoder("test_vit"), "-1", verify=False)
    built = network.build(cut)
    assert built.suffix is cut.suffix
    np.testing.assert_allclose(outputs(made, built, "test"), done.outputs["test"], rtol=1e-5, atol=1e-6)


def test_only_a_network_trained_whole_needs_no_other_weights():
    assert {kind: trained(KINDS[kind])[2].is_whole for kind in ("a block", "the whole network")} == {
        "a block": False,
        "the whole network": True,
    }


def test_of_a_cut_backbone_only_the_trained_part_is_in_the_file(tmp_path):
    _, _, network = trained(KINDS["a block"])
    network.save(tmp_path / "best_head.pt", extra={})
    names = torch.load(tmp_path / "best_head.pt", weights_only=True)["state"]
    assert not any("patch_embed" in name or "blocks.0." in name for name in names)
    assert any(name.startswith("suffix.blocks.5.") for name in names)


def test_the_same_network_is_written_as_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        trained(KINDS["a block"])[2].save(tmp_path / name, extra={"names": list(NAMES)})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    save_tensors(tmp_path / "head.pt", {"format": 1, "params": {}})
    with pytest.raises(DataError, match="holds no trained network"):
        load_network(tmp_path / "head.pt")
