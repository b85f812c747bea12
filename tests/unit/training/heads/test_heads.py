from __future__ import annotations

import numpy as np
import pytest
import torch

from errors import refused
from unchoke.training.heads.heads import HeadConfig, forward, init_params

CPU = torch.device("cpu")


def random_heads(kind, *, num: int = 3, dim: int = 6, num_outputs: int = 4):
    torch.manual_seed(0)
    shapes = init_params(HeadConfig(kind, hidden=5), dim=dim, num_outputs=num_outputs)
    return [{name: torch.randn_like(tensor) for name, tensor in shapes.items()} for _ in range(num)]


@pytest.mark.parametrize("kind", ["linear", "mlp", "attention"])
def test_mixing_first_layers_equals_mixing_inputs(kind):
    (head,) = random_heads(kind, num=1)
    feats = torch.randn(8, 3, 6) if kind == "attention" else torch.randn(8, 6)
    mixed = forward(kind, head, feats, mix=0.3)
    torch.testing.assert_close(mixed, forward(kind, head, 0.3 * feats + 0.7 * feats.flip(0)))


def test_attention_equals_pooling_the_views_by_their_shares():
    (head,) = random_heads("attention", num=1)
    feats = torch.randn(5, 4, 6)
    shares = ((feats @ head["score.weight"].T + head["score.bias"]).tanh() @ head["score.query"]).softmax(dim=1)
    pooled = (shares.unsqueeze(-1) * feats).sum(dim=1)
    expected = pooled @ head["weight"].T + head["bias"]
    torch.testing.assert_close(forward("attention", head, feats), expected)


def test_attention_begins_as_the_plain_mean():
    params = init_params(HeadConfig("attention"), dim=6, num_outputs=2)
    params["weight"] = torch.randn(2, 6)
    feats = torch.randn(3, 5, 6)
    torch.testing.assert_close(forward("attention", params, feats), feats.mean(dim=1) @ params["weight"].T)


def test_beginnings_depend_on_the_seed_alone():
    first, again, other = (init_params(HeadConfig("mlp", seed=seed), dim=6, num_outputs=2) for seed in (1, 1, 2))
    assert torch.equal(first["hidden.weight"], again["hidden.weight"])
    assert not torch.equal(first["hidden.weight"], other["hidden.weight"])


def test_all_wrong_settings_are_listed_together():
    with refused("bad-head", "lr -1", "dropout 1.5", "epochs 0"):
        HeadConfig(lr=-1, dropout=1.5, epochs=0)


@pytest.mark.parametrize("kind", ["linear", "attention"])
def test_logits_of_rows_equal_predictions_from_the_source(mixture, train, kind):
    source, problem = made = mixture(num_views=2)
    head = train(made, [HeadConfig(kind, epochs=2)]).best
    test = problem.positions("test")
    rows = source.all_views(test) if kind == "attention" else source.rows(test)
    np.testing.assert_allclose(head.logits(rows), head.predict(source, test, device=CPU, chunk=7), rtol=1e-4, atol=1e-5)


def test_predictions_of_nothing_are_empty(mixture, train):
    source, _ = made = mixture()
    head = train(made, [HeadConfig(epochs=1)]).best
    assert head.predict(source, np.array([], dtype=np.int64), device=CPU).shape == (0, 3)


def test_features_of_another_encoder_are_refused(mixture, train):
    head = train(mixture(), [HeadConfig(epochs=1)]).best
    with refused("bad-feature-shape", "7"):
        head.predict(mixture(dim=7)[0], np.arange(3), device=CPU)
