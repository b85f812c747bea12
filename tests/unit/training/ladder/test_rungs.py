from __future__ import annotations

from dataclasses import replace

import pytest

from unchoke.core.settings import Settings
from unchoke.training.ladder.rungs import Pace, Rung, first_rung, next_rung, what_is_left

PLAIN = Settings(data="photos", minutes=10)


OTHERS = [({"encoder": "tiny_vit_5m_224"}, 3.0), ({"encoder": "tf_efficientnet_lite2"}, 2.0)]


def climb(settings, minutes, *, pass_s=10.0, others=OTHERS):
    """The rungs of a ladder whose estimates are right."""
    climbed, left_s, pace = [first_rung(settings)], 60 * minutes, Pace(pass_s, lambda overrides: 0.4 * pass_s, others)
    while (rung := next_rung(settings, climbed, pace, left_s)) is not None:
        climbed.append(rung)
        left_s -= rung.expected_s
    assert left_s >= 0
    return climbed


def test_first_rung_heads_on_blocks_unless_asked():
    assert first_rung(PLAIN).overrides == {"cut": "blocks"}
    assert first_rung(replace(PLAIN, cut="blocks")).overrides == {"cut": "blocks"}
    whole = replace(PLAIN, cut="none", augment="strong", epochs=50)
    assert first_rung(whole).overrides == {"cut": "blocks", "augment": None, "epochs": 20}
    assert first_rung(replace(PLAIN, sums={"total": ("a", "b")})).overrides == {}
    assert first_rung(replace(PLAIN, tiles="2x2")).overrides == {}


def test_more_minutes_climb_higher_and_begin_alike():
    names = [[rung.name for rung in climb(PLAIN, minutes)] for minutes in (0.1, 2, 5, 30)]
    assert [len(one) for one in names] == sorted(len(one) for one in names)
    assert len(names[0]) == 1 < len(names[1]) < len(names[3])
    assert all("heads on several blocks" in name for name in names[3][:3])
    assert names[3][3:] == ["the last 4 blocks", "the last 4 blocks of tf_efficientnet_lite2", "the last 8 blocks"]
    assert len(set(names[3])) == len(names[3])


def test_the_epochs_of_the_last_blocks_are_as_many_as_fit():
    epochs = [climb(PLAIN, minutes, others=())[1].overrides.get("epochs", 0) for minutes in (1, 1.3, 30)]
    assert epochs == sorted(epochs)
    assert epochs[0] < epochs[2] == 12


def test_where_the_photos_are_many_only_what_fits_is_tried():
    assert climb(PLAIN, 5, pass_s=290.0) == [first_rung(PLAIN)]


def test_what_was_typed_is_not_varied():
    assert all(rung.overrides["cut"] == "blocks" for rung in climb(replace(PLAIN, head="linear"), 60))


@pytest.mark.parametrize("cut", ["-2", "none"])
def test_typed_cut_epochs_as_fit_or_typed(cut):
    names = [rung.name for rung in climb(replace(PLAIN, cut=cut), 60)]
    assert names == ["heads on several blocks", f"--cut {cut}"]
    short, long = (climb(replace(PLAIN, cut=cut), minutes)[1].overrides for minutes in (1, 60))
    assert short["epochs"] < long["epochs"] == 12
    assert climb(replace(PLAIN, cut=cut, epochs=40), 60)[1].overrides == {"cut": cut}
    assert len(climb(replace(PLAIN, cut=cut, epochs=40), 1)) == 1


def test_a_kept_choice_of_what_heads_see_hinders_nothing():
    assert [rung.name for rung in climb(replace(PLAIN, cut="blocks"), 60)] == [rung.name for rung in climb(PLAIN, 60)]


def test_why_nothing_more_is_tried_is_said():
    pace = Pace(10.0, lambda overrides: 4.0, OTHERS)
    assert what_is_left(PLAIN, climb(PLAIN, 600), pace, 400.0) == "everything there is to try was tried"
    words = what_is_left(PLAIN, [first_rung(PLAIN)], pace, 12.0)
    assert words == "heads on several blocks of tiny_vit_5m_224, or any of 4 more, would not fit into 12.0 s"


def test_epoch_measured_once_and_only_if_pass_fits():
    asked = []
    pace = Pace(10.0, lambda overrides: asked.append(overrides) or 4.0)
    assert next_rung(PLAIN, [first_rung(PLAIN)], pace, left_s=15.0) is None
    assert asked == []
    for left_s in (100.0, 200.0):
        next_rung(PLAIN, [first_rung(PLAIN)], pace, left_s=left_s)
    assert asked == [{"cut": "-4"}]


def test_a_pace_learns_from_what_an_epoch_really_took():
    pace = Pace(10.0, lambda overrides: {"-4": 4.0, "-8": 8.0}[overrides["cut"]])
    pace.learn(Rung("the last 4 blocks", {"cut": "-4", "epochs": 5}, 30.0), train_s=40.0)
    assert pace.epoch_s({"cut": "-4"}) == pytest.approx(8.0)
    assert pace.epoch_s({"cut": "-8"}) == pytest.approx(16.0)
    pace.learn(Rung("heads on several blocks", {"cut": "blocks"}), train_s=100.0)
    assert pace.epoch_s({"cut": "-4"}) == pytest.approx(8.0)
    pace.learn(Rung("the last 8 blocks", {"cut": "-8", "epochs": 5}, 30.0), train_s=40.0)
    assert pace.epoch_s({"cut": "-8"}) == pytest.approx(8.0)


def test_kept_rung_keeps_its_epochs():
    pace = Pace(10.0, lambda overrides: 4.0)

    def kept(rung):
        return replace(rung, expected_s=70.0) if rung.overrides == {"cut": "-4", "epochs": 4} else None

    assert next_rung(PLAIN, [first_rung(PLAIN)], pace, 1000.0).overrides == {"cut": "-4", "epochs": 12}
    assert next_rung(PLAIN, [first_rung(PLAIN)], pace, 1000.0, kept) == Rung(
        "the last 4 blocks", {"cut": "-4", "epochs": 4}, 70.0
    )
