"""The page of `unchoke encoders`: whole, escaped, and with a dot for every candidate that was timed."""

from __future__ import annotations

from typing import Any

from unchoke.runs.report.encoder_page import render_encoder_page, speed_chart


def score(**changed: Any) -> dict[str, Any]:
    plain = {"encoder": "net", "cut": "end", "value": 0.8, "low": 0.7, "high": 0.9, "images_per_s": 50.0, "photo_bytes": 2560}
    return {**plain, "log_loss": None, "strength": 0.1, **changed}


def result(**changed: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"figure": "accuracy", "num_sampled": 10, "num_photos": 20, "constant": 0.25, "skipped": {}}
    plain |= {
        "encoders": [score()],
        "choice": {"value": "net, --cut end", "reason": "the best here"},
        "next_command": "unchoke fit",
    }
    return {**plain, **changed}


def test_names_are_shown_and_never_run() -> None:
    page = render_encoder_page(result(encoders=[score(encoder="<script>x</script>")], skipped={"<b>": "no <i>"}))
    assert "<script>x" not in page
    assert "<b>" not in page
    assert "80.0 %" in page
    assert "25.0 %" in page


def test_every_timed_candidate_is_a_dot() -> None:
    chart = speed_chart([score(), score(cut="blocks", value=0.85), score(images_per_s=None)], percent=True, title="accuracy")
    assert chart.count('r="5"') == 2
    assert "85.0 % at 50 images/s" in chart


def test_a_legend_of_many_makes_the_chart_taller() -> None:
    few, many = (speed_chart([score()] * num, percent=True, title="accuracy") for num in (3, 30))
    assert 'height="360"' in few
    assert 'height="1044"' in many


def test_nothing_that_was_timed_is_no_chart() -> None:
    assert speed_chart([score(images_per_s=None)], percent=True, title="accuracy") == ""


def test_values_are_not_shares() -> None:
    page = render_encoder_page(result(figure="r2", encoders=[score(value=0.5, low=None, high=None)]))
    assert "0.500" in page
    assert "50.0 %" not in page
