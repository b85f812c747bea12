from __future__ import annotations

import numpy as np
import pytest
import torch

from errors import refused
from unchoke.training.heads.heads import HeadConfig

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["linear", "attention"])
def test_logits_of_rows_equal_predictions_from_the_source(mixture, train, kind):
    source, problem = made = mixture(num_views=2)
    head = train(made, [HeadConfig(kind, epochs=2)]).best
    test = problem.positions("test")
    rows = source.all_views(test) if kind == "attention" else source.rows(test)
    np.testing.assert_allclose(head.logits(rows), head.predict(source, test, device=CPU, chunk=7), rtol=1e-4, atol=1e-5)


def test_logits_leave_float32_rows_untouched(mixture, train):
    head = train(mixture(), [HeadConfig(epochs=1)]).best
    rows = np.ones((3, head.dim), dtype=np.float32)
    head.logits(rows)
    assert (rows == 1).all()


def test_predictions_of_nothing_are_empty(mixture, train):
    source, _ = made = mixture()
    head = train(made, [HeadConfig(epochs=1)]).best
    assert head.predict(source, np.array([], dtype=np.int64), device=CPU).shape == (0, 3)


def test_features_of_another_encoder_are_refused(mixture, train):
    head = train(mixture(), [HeadConfig(epochs=1)]).best
    with refused("bad-feature-shape", "7"):
        head.predict(mixture(dim=7)[0], np.arange(3), device=CPU)
