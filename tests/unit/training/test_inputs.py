"""Which settings lead to which training, and which are refused because nothing would heed them."""

from __future__ import annotations

import pytest

from unchoke.core.errors import UsageError
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
def test_heads_train_on_plain_features_and_everything_else_through_a_network(given, network):
    assert trains_network(Settings(**given)) is network


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cut": "-4", "augment": "light"}, "--augment light has no effect with --cut -4"),
        ({"augment": "strong"}, "--augment strong has no effect with --cut end"),
        ({"cut": "none", "views": 2}, "--views 2 has no effect with --cut none"),
        ({"fusion": "film"}, "--fusion film has nothing to fuse"),
        ({"streams": 2, "fusion": "attention"}, "--fusion attention has nothing to fuse"),
    ],
)
def test_an_option_nothing_would_heed_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        refuse_unused(Settings(**given))


@pytest.mark.parametrize(
    "given", [{"cut": "none", "augment": "light"}, {"cut": "-4", "views": 2}, {"tiles": "2x2", "fusion": "film"}, {}]
)
def test_options_that_are_heeded_pass(given):
    refuse_unused(Settings(**given))


def test_options_of_networks_are_named_where_heads_are_trained():
    assert unheeded_options(Settings(memory="4GB", ema=0.9)) == ["--ema", "--memory"]
    assert unheeded_options(Settings(memory="4GB", ema=0.9, cut="-4")) == []
    assert unheeded_options(Settings(epochs=3, lr=0.1)) == []


def test_why_heads_do_not_use_an_option_is_said() -> None:
    assert "is not used: heads train on cached vectors; a batch of them" in unheeded_text(["--sub-batch"])
    assert unheeded_text(["--ema", "--clip"]).endswith("are not used: heads train on cached vectors")
