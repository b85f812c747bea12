"""What bounds a step is named from measured shares."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from unchoke.core.choices import Choice
from unchoke.core.record import RunRecord
from unchoke.runs.own_chokes import bounded_by
from unchoke.runs.step_bottleneck import name_bottleneck


@dataclass(frozen=True)
class Measured:
    name: str
    calls: int
    self_cpu_s: float = 0.0
    self_device_s: float = 0.0


CONVOLUTIONS = [Measured("aten::mkldnn_convolution", 100, 0.08), Measured("aten::relu_", 100, 0.01)]
EVEN = {"wait": 0.01, "forward": 0.4, "backward": 0.5, "optimizer": 0.09}


@pytest.mark.parametrize(
    ("stages", "name"),
    [
        ({"wait": 0.5, "forward": 0.5}, "data-bound"),
        ({"copy": 0.3, "forward": 0.7}, "copy-bound"),
        ({"prepare": 0.4, "forward": 0.6}, "augmentation-bound"),
        ({"forward": 0.3, "backward": 0.4, "optimizer": 0.3}, "optimizer-bound"),
        (EVEN, "compute-bound"),
    ],
)
def test_the_clocks_alone_name_it(stages: dict[str, float], name: str) -> None:
    found = name_bottleneck(stages)
    assert found is not None and found.name == name
    assert found.fix and "%" in found.what


@pytest.mark.parametrize(
    ("operators", "name"),
    [
        (CONVOLUTIONS, "compute-bound"),
        (
            [Measured("aten::mul", 4000, 0.02), Measured("aten::add", 4000, 0.02), Measured("aten::addmm", 999, 0.01)],
            "launch-bound",
        ),
        (
            [Measured("aten::native_batch_norm", 9, 0.2), Measured("aten::relu", 9, 0.2), Measured("aten::conv2d", 9, 0.1)],
            "memory-bound",
        ),
        ([Measured("aten::scatter_add_", 3, 0.02), Measured("aten::view", 30, 0.0001)], "operator-bound"),
        ([Measured("aten::conv2d", 900, 0.5, 0.1), Measured("aten::mm", 900, 0.4, 0.1)], "launch-bound"),
        ([Measured("aten::conv2d", 900, 0.5, 0.9), Measured("aten::relu", 900, 0.4, 0.05)], "compute-bound"),
        ([Measured("Optimizer.step#AdamW.step", 1, 9.0), *CONVOLUTIONS], "compute-bound"),
    ],
)
def test_operators_tell_launch_memory_and_compute_apart(operators: list[Measured], name: str) -> None:
    found = name_bottleneck(EVEN, operators, num_recorded=1)
    assert found is not None and found.name == name


def test_small_calls_come_before_the_optimizer() -> None:
    stages = {"forward": 0.3, "backward": 0.4, "optimizer": 0.3}
    small = [Measured(f"aten::{name}", 3000, 0.02) for name in ("add_", "mul", "sum")]
    found = name_bottleneck(stages, small, num_recorded=1)
    assert found is not None and found.name == "launch-bound"


def test_nothing_is_named_where_nothing_took_time() -> None:
    assert name_bottleneck({}) is None


def test_a_larger_batch_is_typed_out_where_it_would_help() -> None:
    record = RunRecord(command="unchoke train photos --batch-size 8", choices=[Choice("batch_size", 8, "as typed")])
    small, plain = (name_bottleneck(stages) for stages in ({"forward": 0.5, "optimizer": 0.5}, EVEN))
    assert small is not None and plain is not None
    assert bounded_by(small, record).command == "unchoke train photos --batch-size 16"
    assert bounded_by(plain, record).command == "unchoke tune"
