"""Reproducible numbers about many samples at once: functions of a key and each sample's id, and of nothing else.

In: sample ids, hashed once, and a key (a seed, an epoch, what the number is for). Out: one fresh 64-bit number, or one number in
[0, 1), for each sample. A sample's number does not depend on its neighbours, so batches may be formed in any way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unchoke.core.fingerprint import hash_int

Hashes = NDArray[np.uint64]


def hash_ids(sample_ids: Sequence[str]) -> Hashes:
    """One 64-bit number per sample id, made once."""
    return np.fromiter((hash_int("sample", sample_id) for sample_id in sample_ids), dtype=np.uint64, count=len(sample_ids))


def mix(hashes: Hashes, *key: object) -> Hashes:
    """Fresh 64-bit numbers from `hashes` and a key: the splitmix64 finaliser, vectorised."""
    value = hashes ^ np.uint64(hash_int(*key))
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def mix_units(hashes: Hashes, *key: object) -> NDArray[np.float64]:
    """Fresh numbers in [0, 1) from `hashes` and a key, 53 bits each."""
    return (mix(hashes, *key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
