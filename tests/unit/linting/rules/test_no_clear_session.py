"""no-clear-session beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

HEAD = """from tensorflow import keras
def build(width):
    return keras.Sequential([keras.layers.Dense(width)])
"""
RULE = OneRule("no-clear-session", HEAD)


@each(
    "body",
    [
        "for width in widths:\n    m = build(width)\n    m.fit(x, y, epochs=3)",
        "for a, b in folds.split(x):\n    m = keras.models.Sequential()\n    m.fit(x[a], y[a], epochs=3)",
        "for seed in range(5):\n    m = helpers.build_model()\n    n = m\n    n.fit(x, y, epochs=3)",
    ],
)
def test_a_network_for_each_round_is_found_at_the_loop(body: str) -> None:
    assert RULE.lines(body) == [4]


@each(
    "body",
    [
        "for width in widths:\n    keras.backend.clear_session()\n    m = build(width)\n    m.fit(x, y, epochs=3)",
        "m = build(8)\nfor epoch in range(9):\n    m.fit(x, y, epochs=1)",
        "for seed in range(2):\n    m = build(8)\n    m.fit(x, y, epochs=3)",
        "for name in names:\n    m = RandomForest(name)\n    m.fit(x, y)",
    ],
)
def test_what_lets_go_or_builds_once_is_not(body: str) -> None:
    assert RULE.lines(body) == []
