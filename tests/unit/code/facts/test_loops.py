"""Which loops train, how many epochs they run, and what runs on every step."""

from __future__ import annotations

import pytest

from programs import script
from unchoke.code.constant_values import UNKNOWN
from unchoke.code.program import Program


def loops(text: str) -> list[tuple[str, int, int | None, object]]:
    """Kind, line of the batch loop, line of the epoch loop, epochs."""
    program = script(text)
    return [
        (loop.kind, program.line(loop.node), program.line(loop.epochs) if loop.epochs else None, loop.num_epochs)
        for loop in program.facts.training_loops
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for epoch in range(7):\n  for x, y in dl:\n    loss.backward()\n    opt.step()", ("torch", 2, 1, 7)),
        ("for epoch in range(start, 9):\n  for i, b in enumerate(tqdm(dl)):\n    loss.backward()", ("torch", 2, 1, 9)),
        ("def one(dl):\n  for x in dl:\n    loss.backward()\nfor e in range(3):\n  one(dl)", ("torch", 2, 4, 3)),
        ("def step(x):\n  loss.backward()\nfor ep in range(3):\n  for x in dl:\n    step(x)", ("torch", 4, 3, 3)),
        ("for epoch in range(4):\n  for p in ['train', 'val']:\n    for x in dls[p]:\n      loss.backward()", ("torch", 3, 1, 4)),
        ("for epoch in range(4):\n  for x in dl:\n    for k in range(2):\n      loss.backward()", ("torch", 2, 1, 4)),
        ("for epoch in range(4):\n  for x in dl:\n    for opt in (a, b):\n      opt.step()", ("torch", 2, 1, 4)),
        ("for epoch in range(5):\n  for k in range(0, n, bs):\n    loss.backward()", ("torch", 2, 1, 5)),
        ("for epoch in range(300):\n  loss.backward()", ("torch", 1, 1, 300)),
        ("while epoch < 30:\n  for x in dl:\n    scaler.scale(loss).backward()\n    scaler.step(o)", ("torch", 2, 1, 30)),
        ("for fold in range(5):\n  for epoch in range(8):\n    for x in dl:\n      loss.backward()", ("torch", 3, 2, 8)),
        ("for epoch in trange(6):\n  with tqdm(dl) as bar:\n    for x in bar:\n      loss.backward()", ("torch", 3, 1, 6)),
        (
            "for epoch in range(2):\n  for x in ds:\n    with tf.GradientTape() as t:\n      pass\n    opt.apply_gradients([])",
            ("tape", 2, 1, 2),
        ),
        ("for epoch in range(2):\n  for x in ds:\n    model.train_on_batch(x, y)", ("batch", 2, 1, 2)),
        ("for x in dl:\n  accelerator.backward(loss)", ("torch", 1, None, None)),
        ("for epoch in range(n):\n  for x in dl:\n    loss.backward()", ("torch", 2, 1, UNKNOWN)),
        ("def update(engine, batch):\n  loss.backward()\ntrainer = Engine(update)", ("torch", 1, None, None)),
        (
            "for epoch in range(args.n):\n  for x in dl:\n    loss.backward()\np.add_argument('-n', '--n', default=12)",
            ("torch", 2, 1, 12),
        ),
    ],
)
def test_a_training_loop_is_found_with_its_epochs(text: str, found: tuple[object, ...]) -> None:
    assert loops(text) == [found]


def test_a_trainer_class_is_followed_through_its_methods() -> None:
    text = """
    class Trainer:
        def __init__(self, epochs=11):
            self.epochs = epochs
        def run(self):
            for epoch in range(self.epochs):
                self.one_epoch()
        def one_epoch(self):
            for batch in self.loader:
                self.step(batch)
        def step(self, batch):
            loss = self.model(batch)
            loss.backward()
    """
    assert loops(text) == [("torch", 9, 6, 11)]


@pytest.mark.parametrize(
    "text",
    [
        "for x in dl:\n  model(x)",
        "for x in dl:\n  sched.step()",
        "for step in steps:\n  env.step(step)",
        "for layer in reversed(layers):\n  print(layer)",
    ],
)
def test_other_loops_do_not_train(text: str) -> None:
    assert loops(text) == []


def test_lightning_and_keras_models_train_in_a_method() -> None:
    program = script(
        """
        import pytorch_lightning as pl
        from tensorflow import keras
        class Lit(pl.LightningModule):
            def training_step(self, batch, i):
                return self(batch)
        class Net(keras.Model):
            def train_step(self, data):
                return data
        trainer = pl.Trainer(max_epochs=25)
        trainer.fit(Lit(), dm)
        """
    )
    assert [(loop.kind, loop.num_epochs) for loop in program.facts.training_loops] == [("lightning", 25), ("tape", None)]


STEP = """
def helper(x):
    in_helper(x)
def rarely(x):
    in_rarely(x)
def evaluate(dl):
    in_evaluate(dl)
for epoch in range(3):
    before()
    for step, x in enumerate(dl):
        loss = crit(model(x))
        loss.backward()
        each_step(loss)
        helper(x)
        if step % 50 == 0:
            now_and_then(loss)
            rarely(x)
        if scaler is not None:
            with_scaler()
        step % 100 or short()
        if step == 0: first()
        if debug: debugging()
        if (step + 1) % 4:
            continue
        after_skip()
    after()
    evaluate(dl)
    model.eval()
    for x in val:
        validated(x)
"""


def at(program: Program, method: str) -> tuple[bool, bool]:
    call = program.calls_to(method)[0]
    return program.facts.in_training(call) is not None, program.facts.is_conditional(call)


@pytest.mark.parametrize("method", ["each_step", "in_helper", "with_scaler"])
def test_what_runs_on_every_step(method: str) -> None:
    assert at(script(STEP), method) == (True, False)


@pytest.mark.parametrize("method", ["now_and_then", "short", "first", "debugging", "after_skip"])
def test_what_runs_on_some_steps_only(method: str) -> None:
    assert at(script(STEP), method) == (True, True)


@pytest.mark.parametrize("method", ["before", "after", "in_evaluate", "validated", "in_rarely"])
def test_what_is_no_part_of_a_step(method: str) -> None:
    assert not at(script(STEP), method)[0]


@pytest.mark.parametrize(
    ("text", "kind", "epochs"),
    [
        ("from keras.models import Sequential\nm = Sequential()\nm.fit(x, y)", "keras", 1),
        ("model.fit(ds, epochs=12, callbacks=cb)", "keras", 12),
        ("model.fit_generator(g, 10, 30)", "keras", 30),
        ("model.fit(x, y, 32, 15, verbose=0)", "keras", 15),
        ("from sklearn.svm import SVC\nclf = SVC()\nclf.fit(x, y)", "sklearn", None),
        ("from lightning import Trainer\nTrainer(max_epochs=4).fit(m)", "lightning", 4),
        ("from transformers import *\na = TrainingArguments(num_train_epochs=6)\nt = Trainer(m, args=a)\nt.train()", "hf", 6),
        ("from fastai.vision.all import *\nlearn = vision_learner(d, resnet18)\nlearn.fine_tune(5)", "fastai", 5),
        ("from fastai.vision.all import *\nlearn = vision_learner(d, resnet18)\nlearn.fit_one_cycle(n_epoch=7)", "fastai", 7),
    ],
)
def test_training_by_one_call_is_found_with_its_epochs(text: str, kind: str, epochs: object) -> None:
    (fit,) = script(text).facts.fits
    assert (fit.kind, fit.num_epochs) == (kind, epochs)


def test_switching_a_model_to_training_is_no_fit() -> None:
    assert script("model.train()\nself.model.train(True)").facts.fits == []


@pytest.mark.parametrize(
    ("text", "lazy"),
    [
        ("def f(self):\n  if self.h is None:\n    self.h = touch()", True),
        ("def f(self, k):\n  if k not in self.cache:\n    self.cache[k] = touch()", True),
        ("def f(self):\n  if not hasattr(self, 'h'):\n    self.h = touch()", True),
        ("def f(self, k):\n  try:\n    return self.c[k]\n  except KeyError:\n    return touch()", True),
        ("def f(self):\n  if self.train:\n    touch()", False),
        ("def f(self):\n  if self.h is None:\n    pass\n  else:\n    touch()", False),
    ],
)
def test_what_is_done_once_and_kept(text: str, lazy: bool) -> None:
    program = script(text)
    assert program.facts.is_lazy(program.calls_to("touch")[0]) is lazy
