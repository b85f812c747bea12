from __future__ import annotations

from dataclasses import replace

import numpy as np

from unchoke.training.heads.head_trainer import choose_batch_size, default_sweep


def sweep(problem, num):
    return default_sweep(problem, num=num, seed=5, epochs=7, batch_size=64)


def test_three_are_a_linear_a_stronger_regularised_linear_and_an_mlp(mixture):
    plain, strict, mlp = sweep(mixture()[1], 3)
    assert (plain.kind, strict.kind, mlp.kind) == ("linear", "linear", "mlp")
    assert strict.weight_decay > plain.weight_decay


def test_a_sweep_is_distinct_mostly_linear_and_the_same_every_time(mixture):
    configs = sweep(mixture()[1], 64)
    assert len(set(configs)) == 64
    assert configs == sweep(mixture()[1], 64)
    assert 40 <= sum(config.kind == "linear" for config in configs) <= 56
    assert {(config.seed, config.epochs, config.batch_size) for config in configs} == {(5, 7, 64)}


def test_a_smaller_sweep_is_the_beginning_of_a_larger_one(mixture):
    problem = mixture()[1]
    assert sweep(problem, 64)[:10] == sweep(problem, 10)


def test_regression_gets_no_class_settings(plane):
    assert all(config.label_smoothing == 0 and config.class_weights == "none" for config in sweep(plane[1], 64))


def test_uneven_classes_get_tempered_weights(mixture):
    problem = mixture()[1]
    kept = problem.positions("train")[problem.targets[problem.positions("train")] != 0]
    rare = problem.positions("train")[problem.targets[problem.positions("train")] == 0][:5]
    uneven = replace(problem, splits={"train": np.concatenate([kept, rare])})
    assert {config.class_weights for config in sweep(problem, 5)} == {"none"}
    assert {config.class_weights for config in sweep(uneven, 5)} == {"tempered"}


def test_the_batch_size_grows_with_the_data_within_bounds():
    sizes = [choose_batch_size(count).value for count in (1, 300, 1000, 3000, 100_000)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (32, 256)
