"""A bench with tiny data, on a machine without an accelerator."""

from __future__ import annotations

import pytest

from unchoke.machine.machine_facts import MachineFacts
from unchoke.tuning.claims.claim_bench import Bench, Sizes

TINY = Sizes(
    photo_px=(96, 64), num_photos=4, small_photo_px=(60, 45), num_small_photos=6, input_px=32, batch=2, tile_px=64,
    window_px=32, head_rows=40,
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    facts = MachineFacts("Linux", "x86_64", "a processor", cores=2, memory_bytes=2**33, memory_available_bytes=2**32)
    return Bench(tmp_path_factory.mktemp("bench"), sizes=TINY, facts=facts)
