"""Steps and evaluation measured in processes of their own: each size once, one after another or side by side.

In: what is tried, a limit, and batch sizes as a search asks for them. Out: `ProbeResult`s, remembered. Sizes that will be asked
for anyway may be measured ahead, side by side, as far as a bound says that they fit together. What fails there is measured again
alone, so that the answers are those of sizes tried one after another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unchoke.core.events import OnEvent, Progress
from unchoke.core.units import format_count
from unchoke.machine.backend import is_cpu, torch_device
from unchoke.machine.memory.memory_limit import MemoryLimit
from unchoke.machine.memory.probe import ProbeResult, probe
from unchoke.machine.memory.search import Way
from unchoke.training.network.memory_trial import TARGET, MemoryTrial

if TYPE_CHECKING:
    import torch

STAGE = "memory"
USUAL_PROBES = 5
_TIMEOUT_S = 900.0
_WORDS: dict[Way, str] = {"train": "training", "train_ckpt": "with checkpointing", "evaluation": "evaluation"}
Size = tuple[Way, int]


class Prober:
    """`prober(way, batches)`: each size once, from small to large up to the first that does not fit. Answers are remembered.

    `trial(way)` is what the process at `target` is to try, `beside(way)` what it is to try while others do the same; on a CPU no
    process may take more than the limit.
    """

    def __init__(
        self,
        target: str,
        trial: Callable[[Way], Any],
        *,
        device: torch.device,
        limit: MemoryLimit,
        on_event: OnEvent,
        usual: int,
        words: Callable[[Way, int], str],
        beside: Callable[[Way], Any] | None = None,
    ) -> None:
        self._target, self._trial, self._words = target, trial, words
        self._beside = beside or trial
        self._process_bytes = limit.num_bytes if is_cpu(device) else None
        self._on_event, self._usual = on_event, usual
        self._found: dict[Size, ProbeResult] = {}

    @classmethod
    def of_training(cls, trial: MemoryTrial, *, limit: MemoryLimit, on_event: OnEvent, usual: int = USUAL_PROBES) -> Prober:
        """Tries steps of a training, and its evaluation."""
        device = torch_device(trial.device)
        trial = replace(trial, limit_bytes=limit.enforced_bytes(device))

        def asked(way: Way) -> MemoryTrial:
            return replace(trial, loop=replace(trial.loop, grad_ckpt=way == "train_ckpt"), evaluation=way == "evaluation")

        def beside(way: Way) -> MemoryTrial:
            return replace(asked(way), others_bytes=None)

        def words(way: Way, batch: int) -> str:
            return f"{format_count(batch, 'sample')} at once, {_WORDS[way]}"

        return cls(TARGET, asked, device=device, limit=limit, on_event=on_event, usual=usual, words=words, beside=beside)

    def __call__(self, way: Way, batches: Sequence[int]) -> list[ProbeResult]:
        found: list[ProbeResult] = []
        for batch in sorted(set(batches)):
            found.append(self._found.get((way, batch)) or self._measure(way, batch))
            if not found[-1].fits:
                break
        return found

    def ahead(self, sizes: Sequence[Size], *, bound_bytes: Callable[[Way, int], int], free_bytes: int, most: int) -> None:
        """Measure as many of `sizes` side by side, at most `most`, as take no more than `free_bytes` by their bounds."""
        together = fitting_together(sizes, bound_bytes=bound_bytes, free_bytes=free_bytes, most=most)
        if len(together) < 2:
            return
        self._tell(f"{format_count(len(together), 'size')} side by side", len(together))
        given_up = threading.Event()
        with ThreadPoolExecutor(len(together), thread_name_prefix="unchoke-probe") as pool:
            running = {size: pool.submit(self._run, self._beside(size[0]), size[1], given_up) for size in together}
            try:
                answers = {size: future.result() for size, future in running.items()}
            finally:
                given_up.set()
        self._found |= {size: answer for size, answer in answers.items() if answer.fits}

    def _measure(self, way: Way, batch: int) -> ProbeResult:
        self._tell(self._words(way, batch), 1)
        self._found[way, batch] = self._run(self._trial(way), batch)
        return self._found[way, batch]

    def _run(self, trial: Any, batch: int, given_up: threading.Event | None = None) -> ProbeResult:
        (one,) = probe(self._target, trial, [batch], timeout_s=_TIMEOUT_S, limit_bytes=self._process_bytes, given_up=given_up)
        return one

    def _tell(self, trying: str, num: int) -> None:
        done = len(self._found)
        self._on_event(Progress(STAGE, done, max(self._usual, done + num), "probes", extra={"trying": trying}))

    def finish(self) -> None:
        """Say that no more will be measured."""
        if done := len(self._found):
            self._on_event(Progress(STAGE, done, done, "probes"))


def fitting_together(sizes: Sequence[Size], *, bound_bytes: Callable[[Way, int], int], free_bytes: int, most: int) -> list[Size]:
    """The first `most` of `sizes`, each once, that take no more than `free_bytes` together; one too large is passed over."""
    together: list[Size] = []
    left = free_bytes
    for size in dict.fromkeys(sizes):
        if len(together) < most and bound_bytes(*size) <= left:
            together.append(size)
            left -= bound_bytes(*size)
    return together
