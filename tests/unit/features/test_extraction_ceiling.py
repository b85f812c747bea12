"""What an extraction could have done: measured on what it just used, and only where it took long enough."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unchoke.core.ceilings import CORES, DEVICE
from unchoke.core.clock import Clock, Loading, during
from unchoke.core.record import MachineRecord, RunRecord
from unchoke.core.timeline import EXTRACTION, JobTimes, StageRow, Timeline, job_clocks
from unchoke.features.card_decoder import EncodedPicture
from unchoke.features.encoders import Encoder
from unchoke.features.engines import TorchEngine
from unchoke.features.extraction_ceiling import measure_extraction
from unchoke.runs.own_chokes import diagnose_run

ITEMS = [(f"photo-{number}", "") for number in range(64)]
READERS = 8


class Engine:
    """Remembers what it is shown."""

    name, precision = "fake", "f32"

    def __init__(self, *, batch: int = 4, slots: int = 2) -> None:
        self.batch, self.slots = batch, slots
        self.shown: list[tuple[int, ...]] = []

    def encode(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        self.shown.append(inputs.shape)
        return np.zeros((len(inputs), 3), np.float32)

    def describe(self) -> dict[str, Any]:
        return {}


class OneAtATime:
    """A reader that the others have to wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, item_id: str, content: str) -> list[NDArray[np.uint8]]:
        with during("decode"), self._lock:
            time.sleep(0.004)
        return [np.zeros((2, 2, 3), np.uint8)]


def timeline_of(read: Any, readers: int) -> tuple[Timeline, float]:
    """Read all items with so many threads at once, as jobs note it."""
    began_s, clock, loading = time.perf_counter(), Clock(EXTRACTION), Loading()

    def work(items: list[tuple[str, str]]) -> None:
        with loading.here():
            for item in items:
                read(*item)

    threads = [threading.Thread(target=work, args=(ITEMS[place::readers],)) for place in range(readers)]
    with clock.stage("load"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    times = JobTimes()
    times.add(job_clocks(clock, loading))
    return times.timeline(readers=readers), time.perf_counter() - began_s


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short stages are measured too, on a machine with as many cores as readers."""
    monkeypatch.setattr("unchoke.machine.measure_rate.LEAST_S", 0.0)
    monkeypatch.setattr("unchoke.features.extraction_ceiling.usable_cores", lambda: READERS)


def test_small_runs_pay_nothing() -> None:
    engine = Engine()
    found = measure_extraction(engine, OneAtATime(), ITEMS, Timeline(0.1), num_items=64, wall_s=0.1, on_cpu=False)
    assert (found, engine.shown) == (None, [])


@pytest.mark.usefixtures("always")
def test_no_ceiling_for_an_engine_too_slow_to_measure() -> None:
    engine, timeline = Engine(), Timeline(50.0, (StageRow("encode", 50.0, 1.0, 1),), readers=2)
    found = measure_extraction(engine, OneAtATime(), ITEMS, timeline, num_items=64, wall_s=50.0, on_cpu=True)
    assert (found, engine.shown) == (None, [])


@pytest.mark.usefixtures("always")
def test_engine_and_reader_are_measured_alone() -> None:
    engine = Engine()
    found = measure_extraction(engine, OneAtATime(), ITEMS, Timeline(1.0, readers=3), num_items=64, wall_s=1.0, on_cpu=True)
    assert found is not None
    assert {part.part: part.lanes for part in found.parts} == {"reading": 3, "engine": 1}
    assert all(part.alone_per_s > 0 for part in found.parts)
    assert set(engine.shown) == {(4, 2, 2, 3)}, "whole batches of its own size"
    assert found.alone_s.keys() == {"decode"}
    assert found.in_turn


class Decoder:
    """Makes inputs of files, as a card would."""

    device = torch.device("cpu")

    def __init__(self, side_px: int) -> None:
        self._side_px = side_px

    def __call__(self, files: list[EncodedPicture]) -> tuple[torch.Tensor, dict[int, str]]:
        return torch.zeros((len(files), self._side_px, self._side_px, 3), dtype=torch.uint8), {}


@pytest.mark.usefixtures("always")
def test_gpu_decoder_and_network_take_turns(tiny: Encoder) -> None:
    decoder: Any = Decoder(tiny.spec.preprocess.size_px)
    engine = TorchEngine(tiny, device=torch.device("cpu"), batch=4)
    timeline, file = Timeline(1.0, readers=3), EncodedPicture(b"", for_card=True)
    found = measure_extraction(engine, lambda *_: file, ITEMS, timeline, num_items=64, wall_s=1.0, on_cpu=False, decoder=decoder)
    assert found is not None
    assert {part.part: part.place for part in found.parts} == {"reading": CORES, "decoding": DEVICE, "engine": DEVICE}
    assert all(part.per_s > 0 for part in found.parts)


@pytest.mark.usefixtures("always")
def test_items_that_cannot_be_read_leave_nothing_to_measure() -> None:
    found = measure_extraction(Engine(), lambda *_: "missing", ITEMS, Timeline(1.0), num_items=64, wall_s=1.0, on_cpu=False)
    assert found is None


@pytest.mark.usefixtures("always")
def test_readers_that_wait_for_one_another_are_named() -> None:
    read = OneAtATime()
    timeline, wall_s = timeline_of(read, READERS)
    engine = Engine(batch=1024, slots=1)
    found = measure_extraction(engine, read, ITEMS, timeline, num_items=len(ITEMS), wall_s=wall_s, on_cpu=False)
    assert found is not None
    record = RunRecord(
        command="unchoke fit photos/",
        machine=MachineRecord(cores=READERS, on_cpu=False, workers=READERS),
        timings={"extract": wall_s},
        timeline={"extract": timeline},
        ceilings={"extract": found},
    )
    choke = next(choke for choke in diagnose_run(record) if choke.stage == "load")
    assert choke.code == "readers-collide"
    assert choke.evidence["reader_s"] > choke.evidence["alone_s"]
    assert Path(choke.command.split()[2]).name == "photos"
