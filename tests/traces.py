"""Traces as torch.profiler writes them, put together event by event, with times that a test can add up in its head.

The form of each event is that of a trace recorded on an H200 by torch 2.11, shortened to what a reader may rely on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOST, MAIN, GRADIENTS, STREAM = 427, 427, 468, 7
BEGAN_US = 3912509488356.58


class Recording:
    """A trace in the making; times are µs from its start."""

    def __init__(self, **head: Any) -> None:
        self.head = {"schemaVersion": 1, "deviceProperties": [], "displayTimeUnit": "ms", **head}
        self.events: list[dict[str, Any]] = []
        self._link = 0

    def span(
        self, category: str, name: str, start: float, length: float, *, pid: int = HOST, tid: int = MAIN, **args: Any
    ) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": BEGAN_US + start, "dur": length}
        self.events.append({**event, "args": args})

    def op(self, name: str, start: float, length: float, *, dims: Any = None, tid: int = MAIN) -> int:
        """An operator; returns the number that device work refers to."""
        self._link += 1
        shapes = {} if dims is None else {"Input Dims": dims}
        self.span("cpu_op", name, start, length, tid=tid, **{"External id": self._link, **shapes})
        return self._link

    def mark(self, name: str, start: float, length: float) -> None:
        self._link += 1
        self.span("user_annotation", name, start, length, **{"External id": self._link})

    def runtime(self, name: str, start: float, length: float, *, link: int = 0, tid: int = MAIN) -> None:
        self.span("cuda_runtime", name, start, length, tid=tid, **{"External id": link, "correlation": 1000 + link})

    def kernel(self, name: str, start: float, length: float, *, link: int, occupancy: float = 50) -> None:
        facts = {"External id": link, "device": 0, "stream": STREAM, "grid": [16, 1, 1], "block": [128, 1, 1]}
        facts |= {"registers per thread": 32, "shared memory": 400, "est. achieved occupancy %": occupancy}
        self.span("kernel", name, start, length, pid=0, tid=STREAM, **facts)

    def copy(self, start: float, length: float, *, link: int, num_bytes: int) -> None:
        name = "Memcpy HtoD (Pinned -> Device)"
        facts = {"External id": link, "device": 0, "stream": STREAM, "bytes": num_bytes}
        self.span("gpu_memcpy", name, start, length, pid=0, tid=STREAM, **facts)

    def memory(
        self, at: float, num_bytes: int, total: int | None, *, device: int = -1, reserved: int = 0, tid: int = MAIN
    ) -> None:
        """An allocation; `device` -1 is the machine itself."""
        totals = {} if total is None else {"Total Allocated": total, "Total Reserved": reserved}
        args = {"Bytes": num_bytes, "Device Id": device, "Device Type": int(device >= 0), "Addr": 1, **totals}
        event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": HOST, "tid": tid}
        self.events.append({**event, "ts": BEGAN_US + at, "args": args})

    def name(self, what: str, pid: int, tid: int, **args: Any) -> None:
        self.events.append({"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": BEGAN_US, "args": args})

    def save(self, file: Path) -> Path:
        file.write_text(json.dumps({**self.head, "traceEvents": self.events}), encoding="utf-8")
        return file


def training_on_a_card(*, steps: int = 2, convolution_us: float = 300.0, head: dict[str, Any] | None = None) -> Recording:
    """Steps of 1,000 µs on a card: wait 200, copy 50, forward (with its convolution of 30 and a kernel of `convolution_us`),
    backward on its own thread 250, optimizer 100, then `.item()` for 90."""
    made = Recording(**{"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], **(head or {})})
    made.name("process_labels", 0, 0, labels="GPU 0")
    made.name("thread_name", 0, STREAM, name="stream 7 ")
    made.name("thread_name", HOST, MAIN, name=f"thread {MAIN} (python3)")
    made.name("thread_name", HOST, GRADIENTS, name=f"thread {GRADIENTS} (pt_autograd_0)")
    for number in range(steps):
        _step_on_a_card(made, number, 1000.0 * number, convolution_us)
    return made


def _step_on_a_card(made: Recording, number: int, at: float, convolution_us: float) -> None:
    made.mark(f"ProfilerStep#{number + 2}", at, 1000)
    made.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 200)
    made.op("aten::to", at + 200, 50, dims=[[16, 3, 64, 64]])
    copied = made.op("aten::copy_", at + 210, 30, dims=[[16, 3, 64, 64], [16, 3, 64, 64]])
    made.runtime("cudaMemcpyAsync", at + 215, 20, link=copied)
    made.copy(at + 220, 25, link=copied, num_bytes=786432)
    made.op("aten::conv2d", at + 260, 40, dims=[[16, 3, 64, 64], [8, 3, 3, 3]])
    convolved = made.op("aten::cudnn_convolution", at + 265, 30, dims=[[16, 3, 64, 64], [8, 3, 3, 3]])
    made.runtime("cudaLaunchKernel", at + 270, 10, link=convolved)
    made.kernel("sm80_xmma_fprop_implicit_gemm<float>", at + 290, convolution_us, link=convolved)
    made.memory(at + 268, 1 << 20, (1 << 20) * (number + 1), device=0, reserved=4 << 20)
    gradient = "autograd::engine::evaluate_function: ConvolutionBackward0"
    made.op(gradient, at + 350, 250, tid=GRADIENTS)
    made.mark("Optimizer.step#AdamW.step", at + 600, 100)
    read_back = made.op("aten::item", at + 800, 90, dims=[[]])
    made.runtime("cudaStreamSynchronize", at + 810, 70, link=read_back)


def training_on_a_processor(*, steps: int = 2, log_us: float = 50.0) -> Recording:
    """Steps of 1,000 µs without a card: wait 300, forward 200, backward on the same thread 300, optimizer 100, a log line."""
    made = Recording()
    for number in range(steps):
        at = 1000.0 * number
        made.mark(f"ProfilerStep#{number}", at, 1000)
        made.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 300)
        made.op("aten::conv2d", at + 300, 150, dims=[[4, 3, 8, 8], [2, 3, 3, 3]])
        made.op("aten::relu", at + 460, 40, dims=[[4, 2, 6, 6]])
        made.memory(at + 320, 1024, 1024 * (number + 1))
        made.mark("Optimizer.zero_grad#SGD.zero_grad", at + 500, 20)
        made.op("autograd::engine::evaluate_function: ReluBackward0", at + 530, 100)
        made.op("autograd::engine::evaluate_function: ConvolutionBackward0", at + 640, 190)
        made.mark("Optimizer.step#SGD.step", at + 840, 80)
        made.op("aten::to", at + 930, log_us, dims=[[]])
    return made
