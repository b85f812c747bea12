from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from unchoke.core.events import ignore
from unchoke.training.heads.head_trainer import choose_batch_size, default_sweep, refit_head
from unchoke.training.heads.heads import load_head, save_head
from unchoke.training.heads.linear_path import STRENGTHS, strength_at
from unchoke.training.heads.train_heads import train_heads
from unchoke.training.scoring.judge import run_head

CPU = torch.device("cpu")


def sweep(problem, num):
    return default_sweep(problem, num=num, seed=5, epochs=7, batch_size=64)


def test_the_first_two_are_a_solved_linear_head_and_an_mlp(mixture):
    solved, mlp = sweep(mixture()[1], 2)
    assert (solved.kind, solved.solver, solved.epochs) == ("linear", "lbfgs", len(STRENGTHS))
    assert (mlp.kind, mlp.solver) == ("mlp", "adamw")


def test_without_a_val_split_a_middle_penalty_is_solved_for(mixture):
    problem = mixture()[1]
    solved = sweep(replace(problem, splits={"train": problem.positions("train")}), 1)[0]
    assert (solved.solver, solved.epochs) == ("lbfgs", 1)
    assert STRENGTHS[-1] < solved.weight_decay < STRENGTHS[0]


def test_sweep_distinct_mostly_linear_deterministic(mixture):
    configs = sweep(mixture()[1], 64)
    assert len(set(configs)) == 64
    assert configs == sweep(mixture()[1], 64)
    assert 40 <= sum(config.kind == "linear" for config in configs) <= 56
    assert {(config.seed, config.epochs, config.batch_size) for config in configs[1:]} == {(5, 7, 64)}


def test_a_smaller_sweep_is_the_beginning_of_a_larger_one(mixture):
    problem = mixture()[1]
    assert sweep(problem, 64)[:10] == sweep(problem, 10)


def test_regression_gets_no_class_settings(plane):
    assert all(config.label_smoothing == 0 and config.class_weights == "none" for config in sweep(plane[1], 64))


def test_uneven_classes_get_gentle_weights(mixture):
    problem = mixture()[1]
    kept = problem.positions("train")[problem.targets[problem.positions("train")] != 0]
    rare = problem.positions("train")[problem.targets[problem.positions("train")] == 0][:5]
    uneven = replace(problem, splits={"train": np.concatenate([kept, rare])})
    assert {config.class_weights for config in sweep(problem, 5)} == {"none"}
    assert {config.class_weights for config in sweep(uneven, 5)} == {"gentle"}


def test_the_batch_size_grows_with_the_data_within_bounds():
    sizes = [choose_batch_size(count).value for count in (1, 300, 1000, 3000, 100_000)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (32, 256)


@pytest.fixture(params=["linear", "mlp"])
def picked(mixture, request):
    source, problem = mixture()
    config = next(one for one in sweep(problem, 2) if one.kind == request.param)
    return source, problem, train_heads(source, problem, [config], device=CPU, on_event=ignore).best


def test_refit_head_saw_val_first_one_judges_it(picked):
    source, problem, head = picked
    again = refit_head(source, problem, head, device=CPU)
    test, val = problem.positions("test"), problem.positions("val")
    outputs = run_head(again, source, problem, device=CPU)
    assert np.array_equal(outputs["val"], head.predict(source, val, device=CPU))
    assert np.array_equal(outputs["test"], again.predict(source, test, device=CPU))
    assert not np.array_equal(outputs["test"], head.predict(source, test, device=CPU))
    both = np.sort(np.concatenate([problem.positions("train"), val]))
    whole = replace(problem, splits={"train": both})
    same = replace(head.config, epochs=head.best_epoch, patience=0)
    if head.config.kind == "linear":
        same = replace(same, epochs=1, weight_decay=strength_at(head.config, head.best_epoch - 1))
    alone = train_heads(source, whole, [same], device=CPU, on_event=ignore, begin=head.params).best
    assert all(torch.equal(alone.params[name], again.params[name]) for name in alone.params)


def test_both_heads_are_kept_in_the_file(picked, tmp_path):
    source, problem, head = picked
    again = refit_head(source, problem, head, device=CPU)
    save_head(again, tmp_path / "head.pt", extra={})
    loaded, _ = load_head(tmp_path / "head.pt")
    for split, outputs in run_head(again, source, problem, device=CPU).items():
        assert np.array_equal(run_head(loaded, source, problem, device=CPU)[split], outputs)
    save_head(head, tmp_path / "plain.pt", extra={})
    assert load_head(tmp_path / "plain.pt")[0].without_val is None
