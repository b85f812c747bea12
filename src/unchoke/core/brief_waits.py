"""How long threads that compute together spin while they wait for one another: briefly, so that a busy machine does not stall it.

Out: an environment variable that OpenMP reads when torch is first loaded. GNU's OpenMP spins for milliseconds at every barrier.
Where other programs want the cores too, a thread then burns its share waiting for one that cannot run because of it, and a
training becomes many times slower than its share of the machine (docs/claims-history.md, *Training under load*). Nothing
that is computed changes; on two quiet cores no difference in speed was seen.
"""

from __future__ import annotations

import os
import sys

_SPINS = "GOMP_SPINCOUNT"
_POLICY = "OMP_WAIT_POLICY"
BRIEFLY = "1000"
"""About 50 µs: longer than the gaps between the small operations of a step, far shorter than a turn of the scheduler."""


def wait_briefly() -> None:
    """Must be said before torch is first loaded, and is too late after; what someone set up otherwise stays."""
    if "torch" not in sys.modules and _POLICY not in os.environ:
        os.environ.setdefault(_SPINS, BRIEFLY)
