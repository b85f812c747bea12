"""no-prefetch beyond its specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

HEAD = """import tensorflow as tf
def load(path):
    return tf.io.decode_jpeg(tf.io.read_file(path)), 1
def scale(x, y):
    return x / 255, y
ds = tf.data.Dataset.from_tensor_slices(paths)
"""
RULE = OneRule("no-prefetch", HEAD)


@each(
    ("body", "kinds"),
    [
        ("ds = ds.map(load).batch(8)\nmodel.fit(ds, epochs=9)", ["nit"]),
        ("from keras import ops\nds = ds.map(load).batch(8)\nmodel.fit(ds, epochs=9)", ["nit"]),
        ("ds = ds.map(scale).batch(8)\nmodel.fit(ds, epochs=9)", ["nit"]),
        ("ds = ds.map(load).batch(8).prefetch(2)\nmodel.fit(ds, epochs=9)", []),
        ("ds = ds.batch(8)\nmodel.fit(ds, epochs=9)", []),
        ("ds = ds.map(load).batch(8)\nmodel.predict(ds)", []),
        ("def make(d):\n    d = d.map(load)\n    return d.batch(4)\nmodel.fit(make(ds), epochs=9)", ["nit"]),
    ],
)
def test_pipelines_that_train_and_work_something_out(body: str, kinds: list[str]) -> None:
    assert [item.kind for item in RULE.found(RULE.whole(body))] == kinds


def test_the_last_step_is_where_it_belongs() -> None:
    assert RULE.texts("ds = ds.map(load)\nds = ds.batch(8)\nmodel.fit(ds, epochs=9)") == ["ds = ds.batch(8)"]
