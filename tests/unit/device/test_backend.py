"""The calls that differ between devices, on whichever device is here."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from unchoke.device import backend
from unchoke.device.detect import detect_machine
from unchoke.device.policy import choose_policy

DEVICES = ["cpu", *(card.kind for card in detect_machine().accelerators[:1])]


@pytest.mark.parametrize("name", DEVICES)
def test_a_tensor_goes_there_and_back(name: str) -> None:
    device = backend.torch_device(name)
    there = backend.to_device(torch.arange(6.0), device, non_blocking=True)
    backend.synchronize(device)
    assert there.device.type == name
    assert there.cpu().tolist() == [0, 1, 2, 3, 4, 5]
    backend.empty_cache(device)


@pytest.mark.parametrize("name", DEVICES)
def test_peak_memory_is_known_except_on_the_cpu(name: str) -> None:
    device = backend.torch_device(name)
    backend.reset_peak_memory(device)
    held = torch.ones(1000, device=device)
    peak = backend.peak_memory_bytes(device)
    assert (peak is None) == backend.is_cpu(device)
    assert peak is None or peak >= held.numel() * 4


def test_autocast_computes_in_the_dtype_asked_for() -> None:
    device, weights = torch.device("cpu"), torch.ones(4, 4)
    with backend.autocast(device, torch.bfloat16):
        assert (weights @ weights).dtype == torch.bfloat16
    with backend.autocast(device, torch.float32):
        assert (weights @ weights).dtype == torch.float32


def test_a_policy_names_real_torch_things() -> None:
    policy = choose_policy(detect_machine())
    assert isinstance(backend.torch_device(policy), torch.device)
    assert isinstance(backend.torch_dtype(policy), torch.dtype)
    assert backend.torch_memory_format("channels_last") is torch.channels_last
    assert backend.torch_memory_format("contiguous") is torch.contiguous_format


@pytest.mark.skipif(not backend._has_glibc(), reason="glibc on Linux only")
def test_freed_memory_is_kept_so_that_using_it_again_faults_no_pages() -> None:
    code = """
import resource, sys
from unchoke.device.backend import keep_freed_memory

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
