from __future__ import annotations

import json

import numpy as np
import pytest

from errors import refused
from unchoke.core.metrics import find_metric
from unchoke.core.record import RunRecord
from unchoke.runs.report.json import to_jsonable
from unchoke.training.data import Problem
from unchoke.training.scoring.figures import ECE_BINS, class_rates, log_softmax, softmax
from unchoke.training.scoring.intervals import ClassTally, ValueTally
from unchoke.training.scoring.judge import judge
from unchoke.training.scoring.scores import ConstantAnswer, score

NAMES = ("a", "b", "c", "d")


def guesses(count: int = 400, *, seed: int = 0, right: float = 0.7):
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, 4, size=count)
    logits = generator.normal(size=(count, 4)).astype(np.float32)
    told = generator.random(count) < right
    logits[np.arange(count)[told], targets[told]] += 4
    return logits, targets


def test_class_figures_equal_scikit_learn():
    from sklearn import metrics as sklearn

    logits, targets = guesses()
    scores = score("classification", NAMES, logits, targets, seed=0, bootstrap=50)
    predicted = logits.argmax(axis=1)
    expected = {
        "accuracy": sklearn.accuracy_score(targets, predicted),
        "balanced_accuracy": sklearn.balanced_accuracy_score(targets, predicted),
        "macro_f1": sklearn.f1_score(targets, predicted, average="macro"),
        "log_loss": sklearn.log_loss(targets, np.exp(log_softmax(logits)), labels=range(4)),
        "ece": calibration_error(logits, targets),
    }
    assert {name: interval.value for name, interval in scores.values.items()} == pytest.approx(expected, rel=1e-5)
    each = sklearn.precision_recall_fscore_support(targets, predicted, labels=range(4))
    found = [[getattr(row, name) for row in scores.per_class] for name in ("precision", "recall", "f1", "support")]
    assert np.allclose(found, each, rtol=1e-6)
    assert scores.confusion == sklearn.confusion_matrix(targets, predicted).tolist()
    iou = sklearn.jaccard_score(targets, predicted, average=None)
    assert np.allclose(class_rates(np.array(scores.confusion))["iou"], iou, rtol=1e-6)


def calibration_error(logits, targets) -> float:
    """Sample by sample, in plain Python."""
    chances, hits = softmax(logits).max(axis=1), logits.argmax(axis=1) == targets
    bins: dict[int, list[float]] = {}
    for chance, hit in zip(chances.tolist(), hits.tolist(), strict=True):
        bins.setdefault(min(ECE_BINS - 1, int(chance * ECE_BINS)), []).append(chance - hit)
    return sum(abs(sum(gaps)) for gaps in bins.values()) / len(targets)


def test_every_figure_is_a_listed_metric():
    classes = score("classification", NAMES, *guesses(), seed=0, bootstrap=0)
    values = score("regression", PASTURE, *pasture(20), seed=0, bootstrap=0, weights=WEIGHTS)
    names = {*classes.values, "precision", "recall", "f1"}
    assert all("classification" in find_metric(name).tasks for name in names)
    assert all("regression" in find_metric(name).tasks for name in values.values)
    for name, found in [*classes.values.items(), *values.values.items()]:
        metric = find_metric(name)
        assert metric.low is None or found.value >= metric.low
        assert metric.high is None or found.value <= metric.high


def test_bootstrap_with_unit_weights_equals_points():
    logits, targets = guesses()
    tally = ClassTally(logits, targets)
    drawn = tally.figures(tally.columns.sum(axis=0, keepdims=True, dtype=np.float64))
    points = score("classification", NAMES, logits, targets, seed=0, bootstrap=0).values
    assert {name: float(value[0]) for name, value in drawn.items()} == pytest.approx(
        {name: interval.value for name, interval in points.items()}, rel=1e-4
    )


def test_value_figures_equal_scikit_learn_and_the_formulas():
    from sklearn import metrics as sklearn

    generator = np.random.default_rng(0)
    targets = (generator.normal(size=(300, 2)) * [1, 100] + [0, 5000]).astype(np.float32)
    outputs = (targets + generator.normal(size=(300, 2)) * [0.3, 30]).astype(np.float32)
    values = score("regression", ("x", "y"), outputs, targets, seed=0, bootstrap=20).values
    truth, predicted = targets.astype(np.float64), outputs.astype(np.float64)
    assert values["r2"].value == pytest.approx(sklearn.r2_score(truth, predicted))
    assert values["mae/y"].value == pytest.approx(sklearn.mean_absolute_error(truth[:, 1], predicted[:, 1]))
    assert values["rmse/x"].value == pytest.approx(sklearn.root_mean_squared_error(truth[:, 0], predicted[:, 0]))
    tally = ValueTally(outputs, targets, ("x", "y"))
    drawn = tally.figures(tally.columns.sum(axis=0, keepdims=True, dtype=np.float64))
    assert {name: float(drawn[name][0]) for name in values} == pytest.approx(
        {name: interval.value for name, interval in values.items()}, rel=1e-4
    )


def test_intervals_cover_truth_at_their_level():
    many_logits, many_targets = guesses(200_000, seed=999)
    truth = float((many_logits.argmax(axis=1) == many_targets).mean())
    covered = 0
    for seed in range(200):
        logits, targets = guesses(200, seed=seed)
        found = score("classification", NAMES, logits, targets, seed=seed, bootstrap=10).values["accuracy"]
        covered += found.low <= truth <= found.high
    assert 178 <= covered <= 200


def test_fourteen_of_fourteen_right_is_not_certain():
    targets = np.arange(14) % 2
    logits = (np.eye(2)[targets] * 8).astype(np.float32)
    found = score("classification", ("a", "b"), logits, targets, seed=0)
    assert found.values["accuracy"].low == pytest.approx(0.785, abs=0.001)
    assert all(found.values[name].low < 0.85 and found.values[name].high == 1 for name in ("balanced_accuracy", "macro_f1"))
    assert found.values["log_loss"].high > 0.5
    assert found.values["ece"].low == 0
    assert found.values["ece"].high > 0.2
    assert found.per_class[0].recall_low == pytest.approx(0.646, abs=0.001)


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "macro_f1", "log_loss"])
def test_intervals_of_twenty_samples_hold_the_truth(name):
    truth = score("classification", NAMES, *guesses(100_000, seed=999, right=0.9), seed=0, bootstrap=0).values[name].value
    found = [
        score("classification", NAMES, *guesses(20, seed=seed, right=0.9), seed=seed, bootstrap=100).values[name]
        for seed in range(100)
    ]
    assert sum(one.low <= truth <= one.high for one in found) >= 90


def test_r2_of_ten_samples_has_an_interval_that_holds():
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(100):
        targets = generator.normal(size=(10, 1)).astype(np.float32)
        outputs = (targets + generator.normal(size=(10, 1)) * 0.5).astype(np.float32)
        found = score("regression", ("x",), outputs, targets, seed=seed, bootstrap=200).values["r2"]
        covered += found.low <= 0.75 <= found.high
    assert covered >= 90


def test_samples_of_one_group_count_as_less_than_so_many():
    logits, targets = guesses(60)
    copies = [np.repeat(one, 5, axis=0) for one in (logits, targets)]
    groups = np.repeat(np.arange(60), 5)
    plain, told = (score("classification", NAMES, *copies, seed=0, bootstrap=200, groups=g) for g in (None, groups))
    single = score("classification", NAMES, logits, targets, seed=0, bootstrap=200)

    def width(scores, name):
        return scores.values[name].high - scores.values[name].low

    for name in ("accuracy", "balanced_accuracy", "macro_f1"):
        assert told.values[name].value == pytest.approx(plain.values[name].value)
        assert width(told, name) == pytest.approx(width(single, name), rel=0.1)
        assert width(plain, name) < 0.6 * width(told, name)
    assert any("60 groups" in note for note in told.notes)
    assert not any("groups" in note for note in plain.notes)


def test_values_of_one_group_count_as_less_than_so_many():
    generator = np.random.default_rng(0)
    targets = generator.normal(size=(40, 1)).astype(np.float32)
    outputs = (targets + generator.normal(size=(40, 1)) * 0.5).astype(np.float32)
    copies = [np.repeat(one, 4, axis=0) for one in (outputs, targets)]
    plain, told = (score("regression", ("x",), *copies, seed=0, groups=g) for g in (None, np.repeat(np.arange(40), 4)))
    widths = [scores.values["r2"].high - scores.values["r2"].low for scores in (plain, told)]
    assert widths[0] < 0.7 * widths[1]


def test_the_same_seed_gives_the_same_intervals():
    first, again, other = (score("classification", NAMES, *guesses(), seed=seed, bootstrap=100) for seed in (1, 1, 2))
    assert first == again
    assert first.values["macro_f1"] != other.values["macro_f1"]
    assert first.values["accuracy"] == other.values["accuracy"]  # nothing of Wilson's interval is drawn


def test_class_without_samples_not_averaged():
    logits = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 9]], dtype=np.float32)
    scores = score("classification", ("a", "b", "c"), logits, np.array([0, 1, 1]), seed=0, bootstrap=10)
    assert scores.values["balanced_accuracy"].value == pytest.approx(0.75)
    assert scores.per_class[2].recall is None
    assert "class 'c'" in scores.notes[0]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_tiny_test_set_gives_plain_json(count):
    logits, targets = guesses(count)
    text = json.dumps(to_jsonable(score("classification", NAMES, logits, targets, seed=0, bootstrap=100)), allow_nan=False)
    assert '"accuracy"' in text
    values = np.arange(count, dtype=np.float32)[:, None]
    json.dumps(to_jsonable(score("regression", ("x",), values, values + 1, seed=0, bootstrap=100)), allow_nan=False)


def test_r2_of_a_constant_target_is_none_with_the_reason():
    targets = np.stack([np.full(20, 3.0), np.arange(20.0)], axis=1).astype(np.float32)
    scores = score("regression", ("flat", "slope"), targets + 0.5, targets, seed=0, bootstrap=50)
    assert scores.values["r2/flat"].value is None
    assert "'flat'" in scores.notes[0]
    assert scores.values["r2"].value == pytest.approx(scores.values["r2/slope"].value)
    json.dumps(to_jsonable(scores), allow_nan=False)


def test_nothing_to_score_is_an_error():
    with refused("nothing-to-score", "no samples"):
        score("classification", NAMES, np.zeros((0, 4), np.float32), np.zeros(0, np.int64), seed=0)
    with refused("nothing-to-score", "1 outputs"):
        score("regression", ("x",), np.array([[np.nan], [1.0]], np.float32), np.zeros((2, 1)), seed=0)


WEIGHTS = (0.1, 0.1, 0.1, 0.2, 0.5)
PASTURE = ("clover", "dead", "green", "gdm", "total")


def pasture(count: int, *, seed: int = 0):
    generator = np.random.default_rng(seed)
    clover, dead, green = generator.gamma(2.0, [[4.0], [6.0], [12.0]], size=(3, count))
    truth = np.stack([clover, dead, green, green + clover, green + clover + dead], axis=1)
    return (truth + generator.normal(size=truth.shape) * 5).astype(np.float32), truth.astype(np.float32)


def test_weighted_r2_over_all_pairs():
    outputs, targets = pasture(80)
    found = score("regression", PASTURE, outputs, targets, seed=0, weights=WEIGHTS).values["weighted_r2"]
    # One long list of pairs, each with its weight, and nothing clever.
    pairs = [
        (float(y), float(p), w) for ys, ps in zip(targets, outputs, strict=True) for y, p, w in zip(ys, ps, WEIGHTS, strict=True)
    ]
    mean = sum(w * y for y, _, w in pairs) / sum(w for _, _, w in pairs)
    expected = 1 - sum(w * (y - p) ** 2 for y, p, w in pairs) / sum(w * (y - mean) ** 2 for y, _, w in pairs)
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.low < expected < found.high


def test_the_weighted_r2_by_hand():
    targets = np.array([[0.0, 4.0], [2.0, 6.0]], dtype=np.float32)
    outputs = np.array([[1.0, 4.0], [2.0, 4.0]], dtype=np.float32)
    # Weights 1 and 3: the mean of 0, 2, 4, 6 is (0 + 2 + 12 + 18) / 8 = 4; the spread 16 + 4 + 0 + 3·4 = 32; errors 1 + 3·4 = 13.
    found = score("regression", ("x", "y"), outputs, targets, seed=0, weights=(1.0, 3.0)).values["weighted_r2"]
    assert found.value == pytest.approx(1 - 13 / 32)
    assert (found.low, found.high) == (None, None)


def test_weighted_r2_independent_of_weight_scale():
    outputs, targets = pasture(60)
    values = [
        score("regression", PASTURE, outputs, targets, seed=0, bootstrap=50, weights=weights).values["weighted_r2"]
        for weights in (WEIGHTS, tuple(7 * weight for weight in WEIGHTS), (1.0, 0, 0, 0, 0))
    ]
    assert values[1].value == pytest.approx(values[0].value, rel=1e-12)
    assert values[1].low == pytest.approx(values[0].low, rel=1e-6)
    alone = score("regression", ("clover",), outputs[:, :1], targets[:, :1], seed=0, bootstrap=50).values["r2"]
    assert (values[2].value, values[2].low) == pytest.approx((alone.value, alone.low), rel=1e-4)
    assert values[2].value != pytest.approx(values[0].value, rel=0.01)


def test_resampled_weighted_r2_of_resampled_images():
    outputs, targets = pasture(40)
    tally = ValueTally(outputs, targets, PASTURE, WEIGHTS)
    drawn = np.random.default_rng(3).integers(0, 40, size=(5, 40))
    sums = np.stack([tally.columns[rows].sum(axis=0, dtype=np.float64) for rows in drawn])
    for rows, found in zip(drawn, tally.figures(sums)["weighted_r2"], strict=True):
        expected = score("regression", PASTURE, outputs[rows], targets[rows], seed=0, bootstrap=0, weights=WEIGHTS)
        assert found == pytest.approx(expected.values["weighted_r2"].value, rel=1e-5)


def test_weights_leave_every_other_figure_as_it_was():
    plain, weighted = (score("regression", PASTURE, *pasture(30), seed=0, bootstrap=50, weights=w) for w in (None, WEIGHTS))
    assert not [name for name in plain.values if name.startswith("weighted")]
    assert {name: value for name, value in weighted.values.items() if not name.startswith("weighted")} == plain.values


def test_the_weighted_mean_r2_is_that_of_the_targets_own_r2():
    outputs, targets = pasture(80)
    scores = score("regression", PASTURE, outputs, targets, seed=0, weights=WEIGHTS)
    found = scores.values["weighted_mean_r2"]
    expected = sum(w * scores.values[f"r2/{name}"].value for name, w in zip(PASTURE, WEIGHTS, strict=True)) / sum(WEIGHTS)
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.low < found.value < found.high
    assert found.value != pytest.approx(scores.values["weighted_r2"].value, abs=0.01)


def test_resampled_weighted_mean_r2_of_images():
    outputs, targets = pasture(40)
    tally = ValueTally(outputs, targets, PASTURE, WEIGHTS)
    drawn = np.random.default_rng(3).integers(0, 40, size=(5, 40))
    sums = np.stack([tally.columns[rows].sum(axis=0, dtype=np.float64) for rows in drawn])
    for rows, found in zip(drawn, tally.figures(sums)["weighted_mean_r2"], strict=True):
        expected = score("regression", PASTURE, outputs[rows], targets[rows], seed=0, bootstrap=0, weights=WEIGHTS)
        assert found == pytest.approx(expected.values["weighted_mean_r2"].value, rel=1e-4)


def test_weighted_mean_r2_leaves_out_targets():
    targets = np.stack([np.full(20, 3.3), np.arange(20.0), np.arange(20.0) ** 2], axis=1).astype(np.float32)
    outputs = targets + np.linspace(0, 1, 20, dtype=np.float32)[:, None]
    scores = score("regression", ("flat", "slope", "square"), outputs, targets, seed=0, bootstrap=50, weights=(1.0, 2.0, 0.0))
    assert scores.values["weighted_mean_r2"].value == pytest.approx(scores.values["r2/slope"].value)
    none = score("regression", ("flat", "slope", "square"), outputs, targets, seed=0, bootstrap=50, weights=(1.0, 0.0, 0.0))
    assert none.values["weighted_mean_r2"].value is None


def test_weighted_r2_of_constant_truth_is_none():
    targets = np.stack([np.full(20, 3.3), np.arange(20.0)], axis=1).astype(np.float32)
    scores = score("regression", ("flat", "slope"), targets + 0.5, targets, seed=0, bootstrap=50, weights=(1.0, 0.0))
    assert scores.values["weighted_r2"].value is None
    assert "weighted R² is undefined" in scores.notes[-1]
    json.dumps(to_jsonable(scores), allow_nan=False)


CLASSES = ("rare", "common", "other")


def classes(outputs_right: float = 0.0, *, count: int = 100):
    """A train split that is mostly "common", and a test split of which 60 % are."""
    train = np.array([1] * 50 + [0] * 5 + [2] * 20)
    test = np.array([1] * (count * 6 // 10) + [0] * (count // 10) + [2] * (count * 3 // 10))
    splits = {"train": np.arange(75), "test": np.arange(75, 75 + len(test)), "val": np.arange(0)}
    problem = Problem("classification", CLASSES, np.concatenate([train, test]), splits, [str(n) for n in range(75 + len(test))])
    outputs = np.tile(np.array([0, 3, 0], np.float32), (len(test), 1))
    told = np.random.default_rng(0).random(len(test)) < outputs_right
    outputs[told] = np.eye(3, dtype=np.float32)[test[told]] * 4
    return problem, outputs


def test_commonest_train_class_scored_on_test():
    problem, outputs = classes(0.9)
    found = judge({"test": outputs}, problem, seed=0).baseline
    assert found.answer == "common"
    assert found.metrics["test"]["accuracy"].value == pytest.approx(0.6)
    assert found.metrics["test"]["balanced_accuracy"].value == pytest.approx(1 / 3)
    gain = found.gains["test"]["accuracy"]
    assert gain.value == pytest.approx((outputs.argmax(axis=1) == problem.targets[75:]).mean() - 0.6)
    assert 0 < gain.low < gain.value < gain.high


def test_a_model_that_only_answers_so_gains_nothing():
    problem, outputs = classes(0.0)
    gain = judge({"test": outputs}, problem, seed=0).baseline.gains["test"]["accuracy"]
    assert gain.value == 0
    assert gain.low < 0 < gain.high


def test_photos_of_few_groups_say_less_about_the_gain():
    problem, outputs = classes(0.4)
    groups = [str(place // 10) for place in range(len(problem.targets))]
    plain, told = (judge({"test": outputs}, problem, seed=0, groups=g).baseline.gains["test"]["accuracy"] for g in (None, groups))
    assert told.value == plain.value
    assert told.high - told.low > 1.3 * (plain.high - plain.low)


@pytest.mark.parametrize("weights", [None, (1.0, 3.0)])
def test_the_mean_of_train_is_what_values_are_compared_with(weights):
    generator = np.random.default_rng(0)
    targets = generator.normal(size=(120, 2)).astype(np.float32) + np.array([3, 0])
    splits = {"train": np.arange(60), "test": np.arange(60, 120)}
    problem = Problem("regression", ("x", "y"), targets.astype(np.float32), splits, [str(n) for n in range(120)])
    good = (targets[60:] + generator.normal(size=(60, 2)) * 0.5).astype(np.float32)
    found = judge({"test": good}, problem, seed=0, weights=weights).baseline
    assert found.answers == pytest.approx({"x": targets[:60, 0].mean(), "y": targets[:60, 1].mean()}, rel=1e-5)
    assert found.metrics["test"]["r2"].value <= 0
    name = "r2" if weights is None else "weighted_r2"
    gain = found.gains["test"][name]
    assert 0 < gain.low < gain.value < gain.high
    bad = generator.normal(size=(60, 2)).astype(np.float32) + np.array([3, 0], np.float32)
    assert judge({"test": bad}, problem, seed=0, weights=weights).baseline.gains["test"][name].high < 0.3


def test_a_record_gives_the_same_answer_again():
    problem, _ = classes(0.9)
    counts = {"train": {"common": 50, "rare": 5, "other": 20}}
    record = RunRecord.of({"task": {"kind": "classification", "names": list(CLASSES)}, "data": {"class_counts": counts}})
    assert ConstantAnswer.of_record(record) == ConstantAnswer.of_problem(problem)
    values = {"task": {"kind": "regression", "names": ["x"]}, "baseline": {"answers": {"x": 2.5}}}
    assert ConstantAnswer.of_record(RunRecord.of(values)).outputs == (2.5,)
    assert ConstantAnswer.of_record(RunRecord.of({"task": {"kind": "regression", "names": ["x"]}})) is None
