"""Histories that a kill would lose: cases beside the specimens."""

from __future__ import annotations

from tests.linted import OneRule, each

lines = OneRule("history-in-memory").lines


def run(body: str, before: str = "history = []", after: str = "", epochs: int = 20) -> str:
    loop = f"for epoch in range({epochs}):\n    for x in loader:\n        loss = model(x)\n        loss.backward()\n"
    return f"import torch, csv, json, logging\n{before}\n{loop}    {body}\n{after}\n"


@each(
    ("source", "expected"),
    [
        (run("history.append(loss.item())"), [7]),
        (run("history.append(loss.item())", epochs=4), []),
        (run("history['loss'].append(loss.item())", "history = {'loss': []}"), [7]),
        (run("history.setdefault('loss', []).append(loss.item())", "history = {}"), [7]),
        (run("history['loss'].append(loss.item())", "from collections import defaultdict; history = defaultdict(list)"), [7]),
        (run("history[epoch] = loss.item()", "history = {}"), [7]),
        (run("history += [loss.item()]"), [7]),
        (run("history = history + [loss.item()]"), [7]),
        (run("history = np.append(history, loss.item())", "import numpy as np; history = np.array([])"), [7]),
        (run("history.append(loss.item())", after="json.dump(history, open('h.json', 'w'))"), [7]),
        (run("best['acc'] = acc", "best = {}"), []),
        (run("print(loss)"), []),
        (run("snapshots.append(copy.deepcopy(model.state_dict()))", "snapshots = []"), []),
        (run("history = []; history.append(loss.item())"), []),
        (run("history.append(loss.item()); json.dump(history, open('h.json', 'w'))"), []),
        (run("history.append(loss.item()); wandb.log({'loss': loss})", "import wandb; history = []"), []),
        (run("history.append(loss.item()); writer.add_scalar('loss', loss, epoch)"), []),
        (run("history.append(loss.item()); torch.save({'m': model.state_dict(), 'h': history}, 'a.pt')"), []),
        (run("history.append(loss.item()); torch.save({'m': model.state_dict()}, 'a.pt')"), [7]),
        (run("history.append(loss.item()); model.save_pretrained('out')"), [7]),
        (run("history.append(loss.item()); log_metrics(epoch, loss)", "from theirs import log_metrics; history = []"), []),
        (run("history.append(loss.item()); tqdm.write(str(loss))", "from tqdm import tqdm; history = []"), [7]),
        (run("history.append(loss.item()); print(loss, file=out)"), []),
        (run("history.append(loss.item()); logging.info('%s', loss)"), [7]),
        (run("history.append(loss.item()); logging.info('%s', loss)", "logging.basicConfig(filename='a.log'); history = []"), []),
        (run("run['loss'].append(loss.item())", "import neptune; run = neptune.init_run()"), []),
    ],
)
def test_a_list_that_only_grows_in_memory(source: str, expected: list[int]) -> None:
    assert lines(source) == expected


def test_batch_numbers_count_if_used_later() -> None:
    step = "        loss = model(x)\n        loss.backward()\n        seen.append(loss.item())\n"
    loop = f"import torch\nseen = []\nfor epoch in range(9):\n    for x in loader:\n{step}"
    assert lines(loop + "plt.plot(seen)\n") == [7]
    assert lines(loop) == []


def test_a_history_on_self_and_one_written_by_a_method() -> None:
    source = """
    import torch
    class Trainer:
        def __init__(self):
            self.losses = []
        def epoch(self):
            for x in self.loader:
                self.model(x).backward()
            self.losses.append(1.0)
        def fit(self):
            for epoch in range(50):
                self.epoch()
                {}
        def write(self):
            with open("log.csv", "a") as file:
                file.write(str(self.losses[-1]))
    """
    assert lines(source.replace("{}", "pass")) == [9]
    assert lines(source.replace("{}", "self.write()")) == []


@each(
    ("line", "expected"),
    [
        ("history = model.fit(x, y, epochs=20)", [4]),
        ("history = model.fit(x, y, epochs=3)", []),
        ("model.fit(x, y, epochs=20)", []),
        ("_ = model.fit(x, y, epochs=20)", []),
        ("history = model.fit(x, y, epochs=20, callbacks=[keras.callbacks.TensorBoard('t')])", []),
        ("history = model.fit(x, y, epochs=20, callbacks=[keras.callbacks.BackupAndRestore('t')])", [4]),
        ("history = model.fit(x, y, epochs=20, callbacks=[Their()])", []),
        ("losses = model.fit(x, y, epochs=20).history['loss']", [4]),
        ("rows.append(model.fit(x, y, epochs=20).history)", [4]),
        ("history = forest.fit(x, y)", []),
    ],
)
def test_the_history_that_keras_gives_back(line: str, expected: list[int]) -> None:
    assert lines(f"from tensorflow import keras\nfrom theirs import Their\nmodel = keras.Sequential()\n{line}\n") == expected
