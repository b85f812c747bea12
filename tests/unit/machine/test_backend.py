"""The calls that differ between devices, on whichever device is here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from errors import refused
from unchoke.machine import backend
from unchoke.machine.detect import detect_machine

DEVICES = ["cpu", *(card.kind for card in detect_machine().accelerators[:1])]


@pytest.mark.parametrize("name", DEVICES)
def test_allocator_peak_is_known_except_on_the_cpu(name: str) -> None:
    device = backend.torch_device(name)
    backend.reset_peak_memory(device)
    held = torch.ones(1000, device=device)
    peak = backend.peak_reserved_bytes(device)
    assert (peak is None) == backend.is_cpu(device)
    assert peak is None or peak >= held.numel() * 4


@pytest.mark.skipif(not backend.has_glibc(), reason="glibc on Linux only")
def test_freed_memory_is_kept_for_reuse() -> None:
    code = """
import resource, sys
from unchoke.machine.backend import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        b"x" * 50_000_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain = faults()
assert keep_freed_memory().value and keep_freed_memory().value
faults()
kept = faults()
assert kept < plain / 10, (kept, plain)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", DEVICES)
def test_what_is_free_is_part_of_what_there_is(name: str) -> None:
    device = backend.torch_device(name)
    assert 0 < backend.device_free_bytes(device) <= backend.device_total_bytes(device)


@pytest.mark.parametrize("name", DEVICES)
def test_the_allocator_holds_at_least_what_tensors_take(name: str) -> None:
    device = backend.torch_device(name)
    backend.reset_peak_memory(device)
    kept = torch.ones(1_000_000, device=device)
    peak, held = backend.peak_reserved_bytes(device), backend.held_memory_bytes(device)
    assert (peak is None) == (held is None) == backend.is_cpu(device)
    assert peak is None or peak >= kept.numel() * 4
    assert backend.is_cpu(device) == (backend.context_bytes(device) == 0)


@pytest.mark.parametrize("name", DEVICES)
def test_a_limit_says_how_it_is_kept(name: str) -> None:
    device = backend.torch_device(name)
    limit_bytes = backend.device_total_bytes(device) // 2
    choice = backend.limit_memory(device, limit_bytes)
    assert (choice.name, choice.evidence["limit_bytes"]) == ("memory", limit_bytes)
    assert ("watched" in choice.reason) == backend.is_cpu(device)
    if not backend.is_cpu(device):
        with pytest.raises(RuntimeError, match="out of memory"):
            torch.empty(limit_bytes, dtype=torch.uint8, device=device)


def test_allocator_setting_makes_torch_warn_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.setattr(backend.sys, "platform", "linux")
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", said.append, raising=False)
    backend._grow_segments()
    monkeypatch.delattr(torch._C, "_accelerator_setAllocatorSettings")
    monkeypatch.setattr(torch.cuda.memory, "_set_allocator_settings", said.append, raising=False)
    backend._grow_segments()
    assert said == ["expandable_segments:True"] * 2
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    backend._grow_segments()
    assert len(said) == 2


def test_context_beside_others_is_a_stated_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    card = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (9_300_000_000, 10_000_000_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    assert backend.context_bytes(card) == backend.expected_context_bytes(card) == 700_000_000
    assert backend.context_bytes(card, others_bytes=None) == 600_000_000
    assert backend.expected_context_bytes(torch.device("cpu")) == 0


@pytest.mark.parametrize("name", DEVICES)
def test_impossible_limit_is_refused_with_numbers(name: str) -> None:
    device = backend.torch_device(name)
    with refused("bad-memory-limit"):
        backend.limit_memory(device, 0)
    with refused("memory-limit-too-high") as caught:
        backend.limit_memory(device, backend.device_total_bytes(device) * 2)
    assert "GB" in caught.value.why


def test_the_allocators_share_leaves_room_for_the_context() -> None:
    fraction = backend._allocator_fraction(4_000, context_bytes=500, total_bytes=7_000)
    assert fraction * 7_000 + 500 == pytest.approx(4_000)
    assert backend._allocator_fraction(7_000, context_bytes=0, total_bytes=6_999) == 1.0
    with refused("memory-limit-too-low") as caught:
        backend._allocator_fraction(400_000_000, context_bytes=500_000_000, total_bytes=7_000_000_000)
    assert "400.0 MB" in caught.value.what
    assert "500.0 MB" in caught.value.why


def test_profiler_is_hushed_unless_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "1")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    backend.quiet_profiler()
    assert (os.environ["KINETO_LOG_LEVEL"], os.environ.pop("TORCH_CPP_LOG_LEVEL")) == ("1", "ERROR")
