"""An engine on another device leaves the network it was made from as it was."""

from __future__ import annotations

from itertools import chain

import torch

from unchoke.features.cut import cut_network, frozen_part
from unchoke.features.encoders import Encoder
from unchoke.features.engines import TorchEngine


def test_a_network_is_left_where_it_was_and_can_be_cut_again(tiny: Encoder) -> None:
    first = cut_network(tiny, "-1")
    TorchEngine(frozen_part(tiny, first), device=torch.device("meta"), batch=4)
    assert {tensor.device.type for tensor in chain(tiny.module.parameters(), tiny.module.buffers())} == {"cpu"}
    assert cut_network(tiny, "-1").shape == first.shape
