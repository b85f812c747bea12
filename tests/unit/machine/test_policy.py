"""The policy for machines that are not here, from hand-written facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from errors import refused
from unchoke.machine import policy
from unchoke.machine.machine_facts import Accelerator, MachineFacts
from unchoke.machine.policy import choose_policy

GIB = 2**30


def machine(system: str, arch: str, cpu_name: str, cores: int, memory_gib: int, **more: Any) -> MachineFacts:
    memory_bytes = memory_gib * GIB
    return MachineFacts(system, arch, cpu_name, cores, memory_bytes, memory_bytes * 3 // 4, torch_version="2.13.0", **more)


M1 = machine("Darwin", "arm64", "Apple M1", 8, 8, accelerators=(Accelerator("mps", "Apple M1", 5 * GIB, unified=True),))
M2_MAX = machine(
    "Darwin", "arm64", "Apple M2 Max", 12, 64, accelerators=(Accelerator("mps", "Apple M2 Max", 48 * GIB, unified=True),)
)
GTX_1650 = machine(
    "Linux", "x86_64", "Intel Core i5", 8, 16, cpu_flags=frozenset({"avx2"}), openvino_version="2026.4",
    accelerators=(Accelerator("cuda", "NVIDIA GeForce GTX 1650", 4 * GIB, (7, 5)),),
)  # fmt: skip
H200 = machine(
    "Linux", "x86_64", "Intel Xeon Platinum", 16, 128, cpu_flags=frozenset({"avx512f", "amx_bf16"}),
    accelerators=(Accelerator("cuda", "NVIDIA H200", 139 * GIB, (9, 0)),),
)  # fmt: skip
TWO_CORES = machine("Linux", "x86_64", "AMD EPYC", 2, 8, cpu_flags=frozenset({"avx2"}), openvino_version="2026.4")
TWO_CORES_BF16 = replace(TWO_CORES, cpu_flags=frozenset({"avx2", "avx512f", "avx512_bf16"}))
WINDOWS = machine("Windows", "AMD64", "Intel Core i7", 8, 16, cpu_flags=frozenset({"avx2"}), descriptor_limit=512)
GTX_1080 = replace(GTX_1650, accelerators=(Accelerator("cuda", "GeForce GTX 1080", 8 * GIB, (6, 1)),))
ALL = {
    "m1": M1,
    "m2 max": M2_MAX,
    "1080": GTX_1080,
    "1650": GTX_1650,
    "h200": H200,
    "2 cores": TWO_CORES,
    "bf16": TWO_CORES_BF16,
    "windows": WINDOWS,
}

EXPECTED: dict[str, dict[str, Any]] = {
    "m1": {"device": "mps", "dtype": "float32", "memory_format": "contiguous", "pin_memory": False,
           "workers": 4, "engine": ("torch:f32",), "encode_batch": 16},
    "m2 max": {"device": "mps", "dtype": "float32", "memory_format": "contiguous", "pin_memory": False, "workers": 6,
               "engine": ("torch:f32",), "encode_batch": 32},
    "1080": {"device": "cuda", "dtype": "float32"},
    "1650": {"device": "cuda", "dtype": "float16", "memory_format": "channels_last", "pin_memory": True,
             "workers": 7, "engine": ("torch:f16", "torch:f32"), "encode_batch": 16},
    "h200": {"device": "cuda", "dtype": "bfloat16", "memory_format": "channels_last", "pin_memory": True,
             "workers": 15, "engine": ("torch:f16", "torch:bf16", "torch:f32"), "encode_batch": 128},
    "2 cores": {"device": "cpu", "dtype": "float32", "memory_format": "channels_last", "pin_memory": False,
                "workers": 2, "engine": ("openvino:f32", "torch:f32"), "encode_batch": 8, "decode_threads": 0},
    "bf16": {"device": "cpu", "dtype": "bfloat16", "engine": ("openvino:bf16", "openvino:f32", "torch:bf16", "torch:f32")},
    "windows": {"device": "cpu", "dtype": "float32", "engine": ("torch:f32",), "workers": 7},
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_each_known_machine_gets_what_suits_it(name: str) -> None:
    policy = choose_policy(ALL[name])
    assert {key: getattr(policy, key) for key in EXPECTED[name]} == EXPECTED[name]


def test_choices_have_one_order_on_every_machine() -> None:
    assert len({tuple(choice.name for choice in choose_policy(facts).choices) for facts in ALL.values()}) == 1


def test_cpu_without_openvino_runs_torch() -> None:
    policy = choose_policy(replace(TWO_CORES_BF16, openvino_version=""))
    assert policy.engine == ("torch:bf16", "torch:f32")
    assert "unchoke[openvino]" in policy.choice("engine").reason


def test_int8_is_never_chosen_but_may_be_asked_for() -> None:
    assert not any("int8" in engine for facts in ALL.values() for engine in choose_policy(facts).engine)
    assert choose_policy(TWO_CORES, precision="int8").engine == ("openvino:int8",)


def test_a_given_choice_says_that_it_was_given() -> None:
    policy = choose_policy(H200, device="cpu", workers=3)
    assert (policy.workers, policy.device, policy.pin_memory) == (3, "cpu", False)
    assert policy.choice("workers").reason == "given on the command line"
    assert policy.choice("engine").reason != "given on the command line"
    assert choose_policy(H200, device="auto").device == "cuda"


def test_a_given_precision_narrows_the_engines() -> None:
    assert choose_policy(TWO_CORES_BF16, precision="f32").engine == ("openvino:f32", "torch:f32")


def test_missing_device_is_refused_with_what_there_is() -> None:
    with refused("device-not-available") as refusal:
        choose_policy(M1, device="cuda")
    assert refusal.value.exit_code == 3
    assert "Apple M1" in refusal.value.why
    assert refusal.value.try_ == "--device mps"


@pytest.mark.parametrize(
    ("facts", "wanted", "code"),
    [
        (H200, {"device": "cuda:1"}, "device-not-available"),
        (GTX_1650, {"precision": "bf16"}, "precision-unsupported"),
        (WINDOWS, {"precision": "int8"}, "missing-extra"),
        (GTX_1650, {"precision": "int8"}, "device-option-unsupported"),
    ],
)
def test_what_the_machine_cannot_do_is_refused(facts: MachineFacts, wanted: dict[str, Any], code: str) -> None:
    with refused(code) as refusal:
        choose_policy(facts, **wanted)
    assert refusal.value.why
    assert refusal.value.try_


def test_an_unknown_precision_is_wrong_usage() -> None:
    with refused("unknown-choice"):
        choose_policy(TWO_CORES, precision="f8")


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cpu:5"])
def test_a_device_that_cannot_be_meant_is_wrong_usage(device: str) -> None:
    with refused("unknown-device", device):
        choose_policy(H200, device=device)


@pytest.mark.parametrize(
    ("device", "system", "torch", "fact"),
    [("mps", "Linux", "2.13.0", "Linux"), ("cuda", "Darwin", "2.13.0", "mps"), ("cuda:1", "Windows", "2.13.0+cpu", "2.13.0+cpu")],
)
def test_absent_device_is_refused_without_torch(
    device: str, system: str, torch: str, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy.platform, "system", lambda: system)
    monkeypatch.setattr(policy, "package_version", lambda name: torch)
    with refused("device-not-available", device, fact):
        policy.refuse_absent_device(device)
    for other in (None, "cpu", "auto"):
        policy.refuse_absent_device(other)


def test_device_that_may_be_there_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy.platform, "system", lambda: "Darwin")
    policy.refuse_absent_device("mps")
    monkeypatch.setattr(policy.platform, "system", lambda: "Linux")
    monkeypatch.setattr(policy, "package_version", lambda name: "2.13.0")
    policy.refuse_absent_device("cuda:0")
