from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from errors import refused
from unchoke.core.errors import Interrupted
from unchoke.core.events import Chosen, Note, Progress
from unchoke.core.fingerprint import digest_file
from unchoke.training.data import ArraySource
from unchoke.training.heads.heads import HeadConfig
from unchoke.training.heads.train_heads import warm_heads

CPU = torch.device("cpu")
VARIED = [
    HeadConfig(epochs=4, batch_size=32),
    HeadConfig(lr=1e-2, weight_decay=1.0, label_smoothing=0.1, epochs=6, batch_size=32),
    HeadConfig(lr=3e-3, mixup=0.4, class_weights="balanced", epochs=6, batch_size=32, patience=1),
    HeadConfig("mlp", hidden=16, dropout=0.3, epochs=5, batch_size=32),
    HeadConfig("mlp", hidden=16, dropout=0.0, mixup=0.2, epochs=5, batch_size=32),
    HeadConfig("mlp", hidden=8, dropout=0.5, lr=1e-2, epochs=5, batch_size=64),
    HeadConfig("attention", hidden=8, dropout=0.2, mixup=0.2, epochs=5, batch_size=32, seed=3),
    HeadConfig(solver="lbfgs", epochs=7),
    HeadConfig(solver="lbfgs", class_weights="balanced", epochs=9, patience=2),
]


def correct_share(result, made):
    source, problem = made
    test = problem.positions("test")
    return (result.best.predict(source, test, device=CPU).argmax(axis=1) == problem.targets[test]).mean()


@pytest.mark.parametrize("kind", ["linear", "mlp", "attention"])
def test_each_head_learns_classes_that_can_be_told_apart(mixture, train, kind):
    made = mixture(num_views=2)
    result = train(made, [HeadConfig(kind, hidden=16, lr=1e-2, epochs=15, batch_size=32)])
    assert correct_share(result, made) > 0.9
    assert result.history[-1]["train_loss"] < 0.5 * result.history[0]["train_loss"]


def test_regression_answers_in_the_units_of_the_targets(plane, train):
    source, problem = plane
    result = train(plane, [HeadConfig(lr=3e-2, weight_decay=0.0, epochs=30, batch_size=32)])
    test = problem.positions("test")
    predicted = result.best.predict(source, test, device=CPU)
    spread = problem.targets[test].std(axis=0)
    assert (np.abs(predicted - problem.targets[test]).mean(axis=0) < 0.05 * spread).all()
    assert result.metric == "r2"
    assert result.best.val["r2"] > 0.99


def test_many_at_once_equal_each_alone(mixture, train):
    made = mixture(num_views=3)
    together = train(made, VARIED)
    for number, config in enumerate(VARIED):
        alone = train(made, [config]).all[0]
        assert alone.best_epoch == together.all[number].best_epoch
        for one, other in zip(alone.curve, together.all[number].curve, strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-5)


def test_the_same_inputs_give_the_same_bytes(mixture, train):
    first, again = (train(mixture(num_views=2), VARIED) for _ in range(2))
    assert first.history == again.history
    assert all(torch.equal(tensor, again.best.params[name]) for name, tensor in first.best.params.items())


def test_moving_rows_about_changes_nothing_but_rounding(mixture, train):
    source, problem = mixture()
    moved = np.random.default_rng(5).permutation(source.num_samples)
    where = np.argsort(moved)
    other = replace(
        problem,
        targets=problem.targets[moved],
        sample_ids=[problem.sample_ids[i] for i in moved],
        splits={name: where[positions] for name, positions in problem.splits.items()},
    )
    config = [HeadConfig(epochs=3, batch_size=32)]
    one, two = train((source, problem), config), train((ArraySource(source.rows(moved)), other), config)
    torch.testing.assert_close(one.best.params["weight"], two.best.params["weight"], rtol=1e-4, atol=1e-6)


def test_winner_has_lowest_calibrated_val_loss(mixture, train):
    result = train(mixture(spread=8.0), VARIED[:3])
    assert result.metric == "log_loss"
    metrics = [each.val_metric for each in result.all]
    assert metrics[result.best_index] == min(metrics) > 0
    assert all(each.val_metric == min(row["val_log_loss"] for row in each.curve) for each in result.all)


def test_early_stop_keeps_best(mixture, train):
    made = mixture(spread=8.0)
    result = train(made, [HeadConfig(lr=0.1, epochs=40, batch_size=32, patience=3)])
    assert len(result.history) == result.best.best_epoch + 3
    val = made[1].positions("val")
    shown = (result.best.predict(made[0], val, device=CPU).argmax(axis=1) == made[1].targets[val]).mean()
    assert shown == pytest.approx(result.best.val["accuracy"])


def test_uneven_classes_judged_with_rare_weighted(mixture, train):
    source, problem = mixture(num_classes=2)
    train_positions = problem.positions("train")
    rare = train_positions[problem.targets[train_positions] == 1][:10]
    common = train_positions[problem.targets[train_positions] == 0]
    problem = replace(problem, splits={**problem.splits, "train": np.concatenate([common, rare])})
    events = []
    result = train((source, problem), [HeadConfig(epochs=2, batch_size=32)], on_event=events.append)
    assert result.metric == "log_loss"
    (choice,) = [event.choice for event in events if isinstance(event, Chosen) and event.choice.value == "log_loss"]
    assert choice.evidence["largest_to_smallest_class"] == pytest.approx(len(common) / len(rare), abs=0.01)


def test_balanced_weights_make_a_rare_class_count(mixture, train):
    source, problem = mixture(num_classes=2, count=600, spread=14.0)
    train_positions = problem.positions("train")
    rare = train_positions[problem.targets[train_positions] == 1][:20]
    common = train_positions[problem.targets[train_positions] == 0]
    problem = replace(problem, splits={**problem.splits, "train": np.concatenate([common, rare])})
    test = problem.positions("test")
    guesses = {}
    for weights in ("none", "balanced"):
        config = HeadConfig(lr=3e-3, class_weights=weights, epochs=8, batch_size=32)
        best = train((source, problem), [config]).best
        guesses[weights] = best.predict(source, test, device=CPU).argmax(axis=1).mean()
    assert guesses["balanced"] > guesses["none"]


def test_heads_without_val_keep_last_epoch(mixture, train):
    source, problem = mixture()
    events = []
    problem = replace(problem, splits={"train": problem.positions("train")})
    result = train((source, problem), VARIED[:2], on_event=events.append)
    assert result.best_index == 0
    assert result.best.best_epoch == VARIED[0].epochs
    assert result.all[0].val_metric is None


def test_diverged_configuration_named_others_win(mixture, train):
    events = []
    wild = HeadConfig("mlp", lr=1e30, epochs=3, batch_size=32)
    result = train(mixture(), [wild, HeadConfig(epochs=3, batch_size=32)], on_event=events.append)
    assert result.best_index == 1
    assert result.all[0].diverged
    assert any(isinstance(event, Note) and "configuration 1 " in event.text for event in events)


def test_when_all_diverge_that_is_the_error(mixture, train):
    with refused("diverged", "all 1 "):
        train(mixture(), [HeadConfig("mlp", lr=1e30, epochs=3, batch_size=32)])


def test_class_settings_in_a_regression_are_refused(plane, train):
    with refused("option-not-for-values", "configuration 2"):
        train(plane, [HeadConfig(), HeadConfig(label_smoothing=0.1)])


def test_progress_ends_at_the_last_epoch(mixture, train):
    events = []
    train(mixture(), VARIED[:2], on_event=events.append)
    progress = [event for event in events if isinstance(event, Progress)]
    assert [event.done for event in progress] == [1, 2, 3, 4, 5, 6]
    assert progress[-1].total == 6


def test_stopping_and_going_on_ends_with_the_same_bytes(mixture, train, tmp_path):
    made = mixture(num_views=2)
    whole = train(made, VARIED, checkpoint=tmp_path / "whole.pt")
    stops = 0
    while True:
        try:
            parts = train(made, VARIED, checkpoint=tmp_path / "parts.pt", stop=lambda: True)
            break
        except Interrupted:
            stops += 1
    assert stops == 8
    assert parts.resumed_epoch == 8
    assert digest_file(tmp_path / "parts.pt") == digest_file(tmp_path / "whole.pt")
    assert parts.all == whole.all
    assert all(torch.equal(tensor, parts.best.params[name]) for name, tensor in whole.best.params.items())


def test_a_finished_training_is_not_done_again(mixture, train, tmp_path):
    made, events = mixture(), []
    first = train(made, VARIED[:2], checkpoint=tmp_path / "last.pt")
    again = train(made, VARIED[:2], checkpoint=tmp_path / "last.pt", on_event=events.append)
    assert not any(isinstance(event, Progress) for event in events)
    assert again.all == first.all
    assert torch.equal(again.best.params["weight"], first.best.params["weight"])


def test_checkpoint_of_other_problem_not_used(mixture, train, tmp_path):
    path, events = tmp_path / "last.pt", []
    train(mixture(), VARIED[:1], checkpoint=path)
    fresh = train(mixture(spread=1.0), VARIED[:1])
    result = train(mixture(spread=1.0), VARIED[:1], checkpoint=path, on_event=events.append)
    assert any(isinstance(event, Note) and "last.pt" in event.text for event in events)
    assert torch.equal(result.best.params["weight"], fresh.best.params["weight"])


def test_damaged_checkpoint_is_put_aside(mixture, train, tmp_path):
    path, events = tmp_path / "last.pt", []
    path.write_bytes(b"PK\x03\x04 not a checkpoint")
    train(mixture(), VARIED[:1], checkpoint=path, on_event=events.append)
    assert any(isinstance(event, Note) and "last.pt" in event.text for event in events)


def test_one_sample_and_one_class_can_be_trained(mixture, train):
    source, problem = mixture(num_classes=1)
    problem = replace(problem, splits={"train": np.array([0]), "val": np.array([1])})
    assert train((source, problem), [HeadConfig(epochs=2)]).best.val["accuracy"] == 1.0


def test_warm_kernels_of_every_head():
    kinds = [HeadConfig("linear"), HeadConfig("mlp", mixup=0.2, class_weights="tempered"), HeadConfig("attention")]
    warm_heads(torch.device("cpu"), kinds)
