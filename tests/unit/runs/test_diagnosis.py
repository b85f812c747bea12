"""What held a run of ours back, from its record alone: the stage, the evidence, the gain, the command."""

from __future__ import annotations

from typing import Any

import pytest

from records import as_record
from unchoke.core.choices import Choice
from unchoke.core.findings import Finding
from unchoke.core.record import OperatorRecord, RunRecord
from unchoke.runs import diagnosis
from unchoke.runs.diagnosis import name_bottleneck


def diagnose_run(plain: dict[str, Any], **options: Any) -> list[Finding]:
    return diagnosis.diagnose_run(as_record(plain), **options)


def rows(seconds: dict[str, float], calls: int = 100) -> list[dict[str, Any]]:
    return [{"stage": stage, "seconds": spent_s, "share": 0.0, "calls": calls} for stage, spent_s in seconds.items()]


def timeline(seconds: dict[str, float], loading: dict[str, float] | None = None, *, readers: int = 2, calls: int = 100) -> Any:
    stages, inside = rows(seconds, calls), rows(loading or {}, 1_000)
    return {"wall_s": sum(seconds.values()), "stages": stages, "loading": inside, "readers": readers, "epochs": []}


def run(train: Any = None, extract: Any = None, **more: Any) -> dict[str, Any]:
    """A record of ten epochs on two cores, both of which read."""
    works = {name: one for name, one in (("train", train), ("extract", extract)) if one}
    return {
        "command": "unchoke train photos/ --cut none --workers 1",
        "machine": {"cores": 2, "on_cpu": True, "workers": 2},
        "versions": {"openvino": "2026.4"},
        "data": {"source": "photos/", "splits": {"train": 700, "val": 150, "test": 150}},
        "history": [{}] * 10,
        "choices": [{"name": "cache", "value": "none", "reason": "", "evidence": {}}],
        "timeline": works,
        "timings": {name: one["wall_s"] for name, one in works.items()},
        **more,
    }


HEALTHY = {"wait": 0.5, "copy": 0.1, "prepare": 2.0, "forward": 20.0, "backward": 40.0, "optimizer": 3.0, "evaluate": 6.0}


def found(record: dict[str, Any]) -> dict[str, Any]:
    return next(iter(diagnose_run(record))).to_dict()


def test_healthy_run_has_nothing_to_tell() -> None:
    assert diagnose_run(run(timeline(HEALTHY, {"read": 3.0, "collate": 1.0})), out=" --out work") == []


def test_decoding_every_epoch_should_be_cached() -> None:
    slow = timeline({**HEALTHY, "wait": 40.0}, {"open": 2.0, "read": 6.0, "decode": 64.0, "transform": 8.0, "collate": 0.0})
    choke = found(run(slow))
    assert (choke["code"], choke["stage"], choke["path"], choke["severity"]) == (
        "decoded-every-epoch",
        "decode",
        "photos/",
        "warning",
    )
    assert choke["evidence"]["saved_s"] == pytest.approx(36.0), "all of the waiting, but for the first of ten epochs"
    assert choke["command"] == "unchoke train photos/ --cut none --workers 1 --cache disk"
    assert "1,000 times" in choke["message"]


def test_decoding_on_the_training_cpu_costs_its_share() -> None:
    busy = timeline(HEALTHY, {"decode": 60.0})
    assert found(run(busy))["evidence"]["saved_s"] == pytest.approx(27.0)
    on_a_card = run(busy, machine={"cores": 2, "on_cpu": False, "workers": 2})
    assert "decoded-every-epoch" not in [choke.code for choke in diagnose_run(on_a_card)]


def test_more_readers_only_where_there_are_cores() -> None:
    slow = timeline({**HEALTHY, "wait": 40.0}, {"read": 50.0}, readers=1)
    choke = found(run(slow, machine={"cores": 2, "on_cpu": True, "workers": 1}))
    assert (choke["code"], choke["command"]) == ("too-few-readers", "unchoke train photos/ --cut none --workers 2")
    assert choke["evidence"]["saved_s"] == pytest.approx(15.0), "two threads need 25 s"
    beside_a_card = found(run(slow, machine={"cores": 2, "on_cpu": False, "workers": 1}))
    assert beside_a_card["evidence"]["saved_s"] == pytest.approx(40.0), "which the steps hide there"
    assert "too-few-readers" not in [choke.code for choke in diagnose_run(run(slow))]


def test_the_frozen_part_waits_for_pictures() -> None:
    waits = timeline({"load": 40.0, "encode": 50.0, "write": 5.0, "other": 5.0}, {"decode": 40.0}, readers=1)
    choke = found(run(extract=waits, machine={"cores": 4, "on_cpu": True, "workers": 1}))
    assert (choke["code"], choke["stage"]) == ("extraction-waits", "load")
    assert choke["evidence"]["saved_s"] == pytest.approx(30.0)
    assert choke["command"].endswith("--workers 4")


def test_plain_torch_is_found_only_if_nothing_was_compared() -> None:
    plain = run(extract=timeline({"load": 5.0, "encode": 95.0}, calls=16), encoder={"engine": "torch"})
    assert diagnose_run(plain) == []
    missing = found({**plain, "versions": {}})
    assert (missing["code"], missing["command"]) == ("slow-engine", "pip install 'unchoke[openvino]'")
    asked = found({**plain, "command": "unchoke fit photos/ --engine torch --epochs 3"})
    assert asked["command"] == "unchoke fit photos/ --epochs 3"


def test_gains_are_ranked_and_small_ones_dropped() -> None:
    extract = timeline({"load": 4.0, "encode": 5.0}, {"decode": 4.0}, readers=1)
    both = run(timeline({**HEALTHY, "wait": 40.0}, {"decode": 60.0}), extract, machine={"cores": 2, "on_cpu": True, "workers": 2})
    codes = [(choke.code, choke.severity) for choke in diagnose_run(both)]
    assert codes == [("decoded-every-epoch", "warning")]
    short = run(timeline({"forward": 0.02, "wait": 0.5}, {"decode": 0.5}))
    assert diagnose_run(short) == [], "half a second is not worth a word"
    assert diagnose_run(short, min_saved_s=0.0)[0].code == "decoded-every-epoch"


def test_records_without_clocks_have_nothing_to_tell() -> None:
    assert diagnose_run({}) == []
    assert diagnose_run({"timings": {"train": 100.0}, "timeline": {}}) == []


def test_only_options_of_the_command_are_suggested() -> None:
    masks = run(
        timeline({**HEALTHY, "wait": 40.0}, {"decode": 64.0}), choices=[], command="unchoke segment train scenes/ --cut none"
    )
    assert diagnose_run(masks) == []


def measured(name: str, calls: int, self_cpu_s: float = 0.0, self_device_s: float = 0.0) -> OperatorRecord:
    return OperatorRecord(name=name, calls=calls, self_cpu_s=self_cpu_s, self_device_s=self_device_s)


CONVOLUTIONS = [measured("aten::mkldnn_convolution", 100, 0.08), measured("aten::relu_", 100, 0.01)]
EVEN = {"wait": 0.01, "forward": 0.4, "backward": 0.5, "optimizer": 0.09}
OPTIMIZING = {"forward": 0.3, "backward": 0.4, "optimizer": 0.3}
SMALL_CALLS = [measured(f"aten::{name}", 3000, 0.02) for name in ("add_", "mul", "sum")]


@pytest.mark.parametrize(
    ("stages", "operators", "code"),
    [
        ({"wait": 0.5, "forward": 0.5}, [], "data-bound"),
        ({"copy": 0.3, "forward": 0.7}, [], "copy-bound"),
        ({"prepare": 0.4, "forward": 0.6}, [], "augmentation-bound"),
        (OPTIMIZING, [], "optimizer-bound"),
        (OPTIMIZING, SMALL_CALLS, "launch-bound"),
        (EVEN, [], "compute-bound"),
        (EVEN, CONVOLUTIONS, "compute-bound"),
        (EVEN, [*SMALL_CALLS, measured("aten::addmm", 999, 0.01)], "launch-bound"),
        (
            EVEN,
            [measured("aten::native_batch_norm", 9, 0.2), measured("aten::relu", 9, 0.2), measured("aten::conv2d", 9, 0.1)],
            "memory-bound",
        ),
        (EVEN, [measured("aten::scatter_add_", 3, 0.02), measured("aten::view", 30, 0.0001)], "operator-bound"),
        (EVEN, [measured("aten::conv2d", 900, 0.5, 0.1), measured("aten::mm", 900, 0.4, 0.1)], "launch-bound"),
        (EVEN, [measured("aten::conv2d", 900, 0.5, 0.9), measured("aten::relu", 900, 0.4, 0.05)], "compute-bound"),
        (EVEN, [measured("Optimizer.step#AdamW.step", 1, 9.0), *CONVOLUTIONS], "compute-bound"),
    ],
)
def test_bottleneck_of_a_step(stages: dict[str, float], operators: list[OperatorRecord], code: str) -> None:
    found = name_bottleneck(RunRecord(), stages, operators, num_recorded=len(operators) and 1)
    assert found is not None and found.code == code
    assert found.fix and found.message


def test_larger_batch_suggested_where_it_helps() -> None:
    record = RunRecord(command="unchoke train photos --batch-size 8", choices=[Choice("batch_size", 8, "as typed")])
    small, plain = (name_bottleneck(record, stages) for stages in ({"forward": 0.5, "optimizer": 0.5}, EVEN))
    assert small is not None and small.command == "unchoke train photos --batch-size 16"
    assert plain is not None and plain.command == "unchoke tune"
    assert name_bottleneck(record, {}) is None
