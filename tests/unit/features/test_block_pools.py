"""Pooled maps of several blocks: which stages, what they hold, and networks without stages."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.cut import BlockPools, cut_network, pool, pool_blocks
from unchoke.features.encoders import bare_encoder

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def pools_of(name: str, side_px: int) -> tuple[nn.Module, BlockPools, torch.Tensor]:
    prepare_torchvision()
    import timm

    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=0).eval()
    images = torch.randn(2, 3, side_px, side_px)
    return network, pool_blocks(network, images[:1]), images


def test_row_is_end_then_mean_and_deviation() -> None:
    network, pools, images = pools_of("tf_efficientnet_lite0", 64)
    maps: list[torch.Tensor] = []
    for number in (2, 4, 6):  # where strides 8, 16 and 32 end
        network.blocks[number].register_forward_hook(lambda _, __, output: maps.append(output))  # type: ignore
    with torch.inference_mode():
        end = network(images)
        expected = torch.cat([end, *(part for one in maps[:3] for part in (one.mean((2, 3)), one.std((2, 3), correction=0)))], 1)
        torch.testing.assert_close(pools(images), expected)
    assert expected.shape == (2, 1280 + 2 * (40 + 112 + 320))


def test_a_mean_that_the_end_repeats_is_left_out() -> None:
    network, pools, images = pools_of("test_resnet", 64)
    assert pools.last_is_end
    with torch.inference_mode():
        rows, end = pools(images), network(images)
    assert sum(torch.allclose(rows[:, start : start + 96], end, atol=1e-5) for start in range(rows.shape[1] - 95)) == 1


def test_transformer_is_pooled_after_each_third() -> None:
    assert pools_of("test_vit", 160)[1].stages == [1, 3, 5]


def test_constant_map_deviates_by_nothing() -> None:
    mean, deviation = pool(torch.full((1, 3, 4, 4), 2.5, dtype=torch.bfloat16))
    assert mean.dtype == torch.float32
    assert (mean == 2.5).all()
    assert (deviation == 0).all()


def test_network_without_stages_is_cut_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = bare_encoder("test_resnet")
    assert cut_network(encoder, "blocks").name == "blocks"
    monkeypatch.delattr(type(encoder.module), "forward_intermediates")
    whole = cut_network(encoder, "blocks")
    assert (whole.name, whole.shape) == ("end", (encoder.spec.dim,))
