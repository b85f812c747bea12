"""Which settings lead to which training, and which are refused because nothing would heed them."""

from __future__ import annotations

import pytest

from errors import refused
from unchoke.core.settings import Settings
from unchoke.training.inputs import refuse_unused, trains_network, unheeded_options, unheeded_text


@pytest.mark.parametrize(
    ("given", "network"),
    [
        ({}, False),
        ({"views": 3}, False),
        ({"cut": "-4"}, True),
        ({"cut": "none"}, True),
        ({"tiles": "2x2"}, True),
        ({"streams": 2}, True),
        ({"sums": {"c": ("a", "b")}}, True),
        ({"target_weights": {"a": 1.0}}, True),
        ({"positive": True}, True),
        ({"input": ("NDVI",)}, True),
    ],
)
def test_heads_on_plain_features_else_network(given, network):
    assert trains_network(Settings(**given)) is network


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"cut": "-4", "augment": "light"}, ("--augment light", "--cut -4")),
        ({"augment": "strong"}, ("--augment strong", "--cut blocks")),
        ({"cut": "none", "views": 2}, ("--views 2", "--cut none")),
        ({"fusion": "film"}, ("--fusion film",)),
        ({"streams": 2, "fusion": "attention"}, ("--fusion attention",)),
    ],
)
def test_an_option_nothing_would_heed_is_refused(given, options):
    with refused("option-has-no-effect", *options):
        refuse_unused(Settings(**given))


@pytest.mark.parametrize(
    "given", [{"cut": "none", "augment": "light"}, {"cut": "-4", "views": 2}, {"tiles": "2x2", "fusion": "film"}, {}]
)
def test_options_that_are_heeded_pass(given):
    refuse_unused(Settings(**given))


def test_network_options_unheeded_by_heads():
    assert unheeded_options(Settings(memory="4GB", ema=0.9)) == ["--ema", "--memory"]
    assert unheeded_options(Settings(memory="4GB", ema=0.9, cut="-4")) == []
    assert unheeded_options(Settings(epochs=3, lr=0.1)) == []


def test_unheeded_options_are_named() -> None:
    assert "--sub-batch" in unheeded_text(["--sub-batch"])
    assert all(option in unheeded_text(["--ema", "--clip"]) for option in ("--ema", "--clip"))
