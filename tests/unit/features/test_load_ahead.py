"""What is loaded meanwhile is what would have been loaded, once; what fails there fails where it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import TINY

from errors import refused
from unchoke.core.events import ignore
from unchoke.core.prefetch import Prefetch
from unchoke.features import load_ahead as ahead_module
from unchoke.features.encoders import digest_state
from unchoke.features.load_ahead import load_ahead, warm_up_engines, warm_up_training
from unchoke.features.prepare_engine import open_encoder
from unchoke.runs.session import Session, open_session


@pytest.fixture
def session(photos: Path, tiny_weights: Path, tmp_path: Path) -> Iterator[Session]:
    typed = {"data": str(photos), "encoder": TINY, "weights": str(tiny_weights), "device": "cpu"}
    with open_session(typed, out=tmp_path / "out", on_event=ignore) as session:
        yield session


def test_encoder_loaded_ahead_is_handed_over_once(session: Session) -> None:
    plain = open_encoder(session)
    with Prefetch(load_ahead(session)) as session.prefetch:
        ahead, again = open_encoder(session), open_encoder(session)
    assert ahead.spec == again.spec == plain.spec
    assert digest_state(ahead.module) == digest_state(plain.module)
    assert ahead.module is not again.module
    assert not ahead.module.training
    assert [row.stage for row in session.prefetch.timeline().loading] == ["networks", "encoder"]


def test_unknown_encoder_is_refused_when_opened(photos: Path, tmp_path: Path) -> None:
    with (
        open_session({"data": str(photos), "encoder": "resnet_50"}, out=tmp_path / "out", on_event=ignore) as session,
        Prefetch(load_ahead(session)) as session.prefetch,
        refused("unknown-encoder", "resnet_50"),
    ):
        open_encoder(session)


def test_no_encoder_is_loaded_where_its_features_are_known(workspace: Path) -> None:
    with (
        open_session({}, out=workspace, on_event=ignore) as session,
        Prefetch(load_ahead(session)) as start,
    ):
        assert start.take() is None


def test_warming_up_leaves_the_encoder_as_it_was(session: Session) -> None:
    encoder, cpu = open_encoder(session), torch.device("cpu")
    before = digest_state(encoder.module)
    warm_up_engines(session, encoder, cpu)
    warm_up_training(encoder, session.policy, cpu)
    assert digest_state(encoder.module) == before
    assert not encoder.module.training
    assert not any(parameter.requires_grad for parameter in encoder.module.parameters())


def test_lack_of_memory_ahead_of_the_plan_is_dropped(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    object.__setattr__(session, "settings", replace(session.settings, cut="-1"))
    monkeypatch.setattr(ahead_module, "is_cpu", lambda device: False)
    for name in ("warm_up_engines", "warm_up_training"):
        monkeypatch.setattr(ahead_module, name, lack)
    with Prefetch(load_ahead(session)) as start:
        assert start.take() is not None
