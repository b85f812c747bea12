"""Long trainings that save nothing: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("no-checkpoint").lines


def epochs(head: str, tail: str = "print(epoch)", before: str = "", after: str = "") -> str:
    step = "        loss = model(x).sum()\n        loss.backward()\n        optimizer.step()\n"
    body = f"{before}\nimport torch\n{head}\n    for x, y in loader:\n{step}"
    return body + f"    {tail}\n{after}\n"


@each(
    ("source", "expected"),
    [
        (epochs("for epoch in range(5):"), [3]),
        (epochs("for epoch in range(4):"), []),
        (epochs("for epoch in range(n):"), []),
        (epochs("for epoch in range(n):", before="n = 3 * 10"), [3]),
        (epochs("for _ in range(20):"), [3]),
        (epochs("for fold in range(5):"), []),
        (epochs("for step in range(50):"), []),
        (epochs("for epoch in range(9):", "torch.save(model.state_dict(), 'last.pt')"), []),
        (epochs("for epoch in range(9):", "early_stopping(loss, model)"), []),
        (epochs("for epoch in range(9):", "accelerator.save_state('out')"), []),
        (epochs("for epoch in range(9):", "plt.savefig('loss.png')"), [3]),
        (epochs("for epoch in range(9):", "save_image(model(x), 'fake.png')"), [3]),
        (epochs("for epoch in range(9):", "best = copy.deepcopy(model.state_dict())"), [3]),
        (epochs("for epoch in range(9):", after="torch.save(model.state_dict(), 'last.pt')"), [3]),
    ],
)
def test_an_epoch_loop_is_reported_if_nothing_in_it_saves(source: str, expected: list[int]) -> None:
    assert lines(source) == expected


def test_the_longest_of_several_calls_counts() -> None:
    source = """
    import torch
    def train(model, epochs=3):
        for epoch in range(epochs):
            for x in loader:
                model(x).backward()
    train(a)
    train(b, epochs=30)
    """
    assert lines(source) == [4]


def test_a_method_that_saves_is_looked_into() -> None:
    source = """
    import torch
    class Trainer:
        def keep(self):
            torch.save(self.model.state_dict(), "last.pt")
        def epoch(self):
            for x in self.loader:
                self.model(x).backward()
        def fit(self):
            for epoch in range(50):
                self.epoch()
                self.keep()
    """
    assert lines(source) == []


def test_a_head_on_kept_features_takes_seconds() -> None:
    source = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    head = nn.Linear(512, 4)
    loader = DataLoader(TensorDataset(train_features, y), batch_size=64)
    for epoch in range(40):
        for x, t in loader:
            nn.functional.cross_entropy(head(x), t).backward()
            optimizer.step()
    """
    assert lines(source) == []


@each(
    ("given", "expected"),
    [
        ("epochs=20", [4]),
        ("epochs=2", []),
        ("epochs=20, callbacks=[keras.callbacks.EarlyStopping()]", [4]),
        ("epochs=20, callbacks=[keras.callbacks.ModelCheckpoint('a.keras')]", []),
        ("epochs=20, callbacks=[keras.callbacks.EarlyStopping(), TheirSaver()]", []),
        ("epochs=20, callbacks=their_callbacks()", []),
        ("epochs=20, callbacks=callbacks", []),
        ("epochs=20, **options", []),
        ("epochs=20, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda e, l: model.save(f'{e}.keras'))]", []),
        ("epochs=20, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda e, l: print(e))]", [4]),
    ],
)
def test_keras_fit(given: str, expected: list[int]) -> None:
    head = "from tensorflow import keras\nfrom theirs import TheirSaver, their_callbacks, callbacks\nmodel = keras.Sequential()\n"
    assert lines(f"{head}model.fit(x, y, {given})\n") == expected


def test_the_line_is_that_of_the_method() -> None:
    assert lines("from tensorflow import keras\n(keras.Sequential()\n    .fit(x, epochs=9))\n") == [3]


def test_callbacks_put_together_in_steps() -> None:
    source = """
    from tensorflow import keras
    def made():
        found = [keras.callbacks.EarlyStopping()]
        if kept:
            found.append(keras.callbacks.ModelCheckpoint("a.keras"))
        return found
    model = keras.Sequential()
    model.fit(x, epochs=30, callbacks=made() + [keras.callbacks.CSVLogger("a.csv")])
    """
    assert lines(source) == []


@each(
    ("options", "use", "expected"),
    [
        ("max_epochs=30, enable_checkpointing=False", "fit(model)", [2]),
        ("enable_checkpointing=False", "fit(model)", [2]),
        ("max_epochs=2, enable_checkpointing=False", "fit(model)", []),
        ("enable_checkpointing=False", "test(model)", []),
        ("enable_checkpointing=False, fast_dev_run=True", "fit(model)", []),
        ("max_epochs=30", "fit(model)", []),
    ],
)
def test_lightning(options: str, use: str, expected: list[int]) -> None:
    assert lines(f"import lightning as L\ntrainer = L.Trainer({options})\ntrainer.{use}\n") == expected


@each(
    ("imported", "called", "expected"),
    [
        ("from my_helpers import finish_epoch", "finish_epoch(model, epoch)", []),
        ("from my_helpers import *", "finish_epoch(model, epoch)", []),
        ("from my_helpers import *", "train_one_epoch(model, loader)", [7]),
        ("from my_helpers import log", "log(epoch)", [7]),
    ],
)
def test_code_that_was_not_read_may_save_what_it_is_handed(imported: str, called: str, expected: list[int]) -> None:
    source = f"""
import torch, torchvision
{imported}
model = torchvision.models.resnet18()
optimizer = torch.optim.Adam(model.parameters())
loader = torch.utils.data.DataLoader(torchvision.datasets.ImageFolder("a"))
for epoch in range(60):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward(); optimizer.step(); optimizer.zero_grad()
    {called}
"""
    assert lines(source) == expected


def kinds_of(head: str, epochs: int) -> list[str]:
    loop = f"for epoch in range({epochs}):\n    for x in loader:\n        net(x).sum().backward()\n        opt.step()\n"
    return [item.kind for item in OneRule("no-checkpoint").found(head + loop)]


def test_fit_is_as_long_as_its_stated_steps() -> None:
    fit = "from tensorflow import keras\nx = keras.utils.image_dataset_from_directory('a')\n"
    for steps, kind in ((10, "nit"), (1000, "choke")):
        source = f"{fit}model = keras.Sequential()\nmodel.fit(x, epochs=100, steps_per_epoch={steps})\n"
        assert [item.kind for item in OneRule("no-checkpoint").found(source)] == [kind]


def test_thousands_of_steps_are_a_long_run_too() -> None:
    steps = "def train(num):\n    for i in range(num):\n        model.train_on_batch(x, y)\n"
    assert len(OneRule("no-checkpoint").found(f"{steps}train(18000)\n")) == 1
    assert OneRule("no-checkpoint").found(f"{steps}train(300)\n") == []


def test_the_advice_is_in_the_words_of_the_framework() -> None:
    keras = "from tensorflow import keras\nmodel = keras.Sequential()\nfor epoch in range(60):\n    model.fit(x, y, epochs=1)\n"
    rule = OneRule("no-checkpoint")
    (found,) = rule.found(keras)
    assert "model.save(…)" in found.hit.fix
    assert "torch" not in found.hit.fix
    (found,) = rule.found(epochs("for epoch in range(60):"))
    assert "torch.save" in found.hit.fix


def test_a_helper_that_saves_is_looked_into() -> None:
    keep = "def keep(model, epoch):\n    torch.save(model.state_dict(), f'{epoch}.pt')\n"
    helper = keep + "def end(model, epoch):\n    keep(model, epoch)"
    assert lines(epochs("for epoch in range(60):", "end(model, epoch)", before=helper)) == []
    assert lines(epochs("for epoch in range(60):", "end(model, epoch)", before=helper.replace("torch.save", "print"))) != []
