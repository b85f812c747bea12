"""One real profile of a small training on the processor, and traces put together by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Row = tuple[int, float, float, int]
"""Calls, self µs, total µs, net bytes."""


@dataclass(frozen=True)
class Profiled:
    """A trace file, and torch's own tables of the same recording: by name, and calls by name and shapes."""

    file: Path
    table: dict[str, Row]
    by_shapes: dict[tuple[str, str], int]


@pytest.fixture(scope="package")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.data import DataLoader, TensorDataset

    file = tmp_path_factory.mktemp("profile") / "small.pt.trace.json"
    kept: dict[str, Any] = {}

    def keep(recorded: Any) -> None:
        recorded.export_chrome_trace(str(file))
        kept["table"] = {
            row.key: (row.count, row.self_cpu_time_total, row.cpu_time_total, row.self_cpu_memory_usage)
            for row in recorded.key_averages()
        }
        kept["by_shapes"] = {
            (row.key, json.dumps(row.input_shapes)): row.count for row in recorded.key_averages(group_by_input_shape=True)
        }

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.LazyLinear(3)
        )
        network(torch.randn(1, 3, 12, 12))
        data = TensorDataset(torch.randn(40, 3, 12, 12), torch.randint(0, 3, (40,)))
        optimizer = torch.optim.AdamW(network.parameters())
        settings: Any = {"record_shapes": True, "profile_memory": True, "schedule": schedule(wait=1, warmup=1, active=3)}
        with profile(activities=[ProfilerActivity.CPU], on_trace_ready=keep, **settings) as profiler:
            for images, labels in DataLoader(data, batch_size=8):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(images), labels).backward()
                optimizer.step()
                profiler.step()
    return Profiled(file, **kept)
