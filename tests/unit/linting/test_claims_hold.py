"""A finding is made only where what it claims holds in every branch that can be seen; what matters less is said to be a nit."""

from __future__ import annotations

import json

from tests.linted import OneRule, each

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule

DATA = """\
import torch, cv2
from torch.utils.data import Dataset, DataLoader
class D(Dataset):
    def __init__(self, paths): self.paths = paths
    def __len__(self): return len(self.paths)
    def __getitem__(self, i): return torch.from_numpy(cv2.imread(self.paths[i]))
"""


def kinds(code: str, source: str) -> list[str]:
    return [item.kind for item in OneRule(code).found(source)]


@each(
    ("rest", "found"),
    [
        ("train = DataLoader(D([]), shuffle=True, num_workers=0)", 1),
        ("class CFG:\n    workers = 0\ntrain = DataLoader(D([]), shuffle=True, num_workers=CFG.workers)", 1),
        ("n = 0\nif cuda:\n    n = 4\ntrain = DataLoader(D([]), shuffle=True, num_workers=n)", 0),
        ("if cuda:\n    n = 4\nelse:\n    n = 0\ntrain = DataLoader(D([]), shuffle=True, num_workers=n)", 0),
        ("kw = {}\nif cuda:\n    kw = {'num_workers': 4}\ntrain = DataLoader(D([]), shuffle=True, **kw)", 0),
        ("kw = {'shuffle': True}\nif cuda:\n    kw.update(more)\ntrain = DataLoader(D([]), **kw)", 0),
        ("train = DataLoader(D([]), shuffle=True, **settings())", 0),
    ],
)
def test_no_workers_is_said_only_where_no_branch_has_any(rest: str, found: int) -> None:
    assert len(kinds("no-workers", DATA + rest)) == found


def test_a_default_of_the_command_line_is_said_to_be_one() -> None:
    options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--workers', default=0)\nargs = p.parse_args()\n"
    (found,) = OneRule("no-workers").found(DATA + options + "train = DataLoader(D([]), shuffle=True, num_workers=args.workers)")
    assert "unless the command line says otherwise" in found.hit.message


@each(
    ("device", "found"),
    [
        ("device = torch.device('cpu')", 1),
        ("device = torch.device('mps' if mps else 'cpu')", 1),
        ("if gpu:\n    device = torch.accelerator.current_accelerator()\nelse:\n    device = torch.device('cpu')", 0),
        ("device = pick_device()", 0),
        ("from helpers import *\ndevice = torch.device('cpu')", 0),
    ],
)
def test_pinning_found_if_device_known_in_every_branch(device: str, found: int) -> None:
    source = f"import torch\nfrom torch.utils.data import DataLoader\n{device}\nloader = DataLoader(d, pin_memory=True)\n"
    assert len(kinds("pin-without-cuda", source)) == found


MAPS = """\
import tensorflow as tf
def cam(model, x):
    with tf.GradientTape() as tape:
        y = model(x)
    return tf.nn.relu(tape.gradient(y, x)).numpy()
def gallery(model, items):
    for x in items:
        cam(model, x)
"""
TIMED = """\
import torch
class R:
    def run(self):
        def step():
            t = self.clock()
            self.loss(self.model(self.x)).backward()
            self.opt.step()
            return self.clock() - t
        total = 0.
        for i in range(self.n):
            took = step()
            total += took
"""


def test_a_tape_that_changes_nothing_is_no_training() -> None:
    assert not kinds("host-sync", MAPS)
    assert kinds("host-sync", MAPS.replace("    return", "    opt.apply_gradients(g)\n    return"))


def test_seconds_carry_no_graph() -> None:
    assert not kinds("graph-kept", TIMED)


@each(
    ("made", "found"),
    [
        ("from tensorflow import keras\nmodel = keras.Sequential([])", 1),
        ("import autokeras as ak\nmodel = ak.ImageClassifier()", 0),
        ("import segmentation_models as sm\nmodel = sm.Unet()\nmodel.compile('adam', 'mse')", 1),
    ],
)
def test_an_estimator_of_another_library_is_no_keras(made: str, found: int) -> None:
    assert len(kinds("no-checkpoint", f"{made}\nmodel.fit(x, y, epochs=90)\n")) == found


@each(("workers", "kind"), [("", "nit"), (", num_workers=2", "risk"), (", num_workers=n", "nit")])
def test_a_lambda_matters_less_without_workers(workers: str, kind: str) -> None:
    source = f"from torch.utils.data import DataLoader\nDataLoader(d, collate_fn=lambda b: b{workers})\n"
    assert kinds("unpicklable-dataset", source) == [kind]


@each(
    ("call", "found"),
    [
        ("torch.load('a.pt')", ["nit"]),
        ("torch.load('a.pt', weights_only=False)", ["nit"]),
        ("torch.load(sys.argv[1])", ["nit"]),
        ("torch.load(sys.argv[1], weights_only=False)", ["nit"]),
        ("lambda path: 0\ndef read(path):\n    return torch.load(path, weights_only=False)", ["nit"]),
        ("lambda path: 0\ndef read(path):\n    net.load_state_dict(torch.load(path, weights_only=False))", ["nit"]),
        ("lambda path: 0\ndef read(path):\n    return torch.load(path, weights_only=False)  # we trust what we made", ["nit"]),
        ("torch.load(torch.hub.download_url_to_file(url, 'c.pt') or 'c.pt', weights_only=False)", ["nit"]),
        ("torch.hub.download_url_to_file(url, 'c.pt')\nnet.load_state_dict(torch.load('c.pt', weights_only=False))", ["risk"]),
        ("torch.load(io.BytesIO(b), weights_only=False)", []),
    ],
)
def test_load_is_a_risk_if_newer_torch_runs_code(call: str, found: list[str]) -> None:
    assert kinds("unsafe-load", f"import io, sys, torch\nx = {call}\n") == found


def test_a_card_asked_for_its_name_is_taken_for_granted() -> None:
    assert kinds("hard-coded-cuda", "import torch\nprint(torch.cuda.get_device_name(0))\n")
    assert not kinds("hard-coded-cuda", "import torch\nif torch.cuda.is_available():\n    print(torch.cuda.get_device_name(0))\n")


def test_own_sequences_have_a_batch_size() -> None:
    source = "import keras\nclass Batches(keras.utils.Sequence):\n    def __init__(self, data, batch_size=8): self.data = data\n"
    source += "    def __getitem__(self, i): return self.data[i]\n"
    source += "train = Batches(a, batch_size=8)\nvalid = Batches(b, batch_size=1)\n"
    assert kinds("eval-batch", source) == ["nit"]


FROZEN = """\
import torch, torchvision
from torchvision import datasets
loader = torch.utils.data.DataLoader(datasets.ImageFolder('a'))
model = torchvision.models.resnet18()
for p in model.parameters(): p.requires_grad = False
model.fc = torch.nn.Linear(512, 2)
opt = torch.optim.Adam(model.fc.parameters())
for epoch in range(9):
    for x, y in loader:
        model(x).sum().backward()
"""


@each(("cell", "found"), [("pass", 1), ("print(", 1), ("tf = RandomFlip(", 0)])
def test_frozen_features_with_an_unparsed_cell(cell: str, found: int) -> None:
    written = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in (FROZEN, cell)]
    data = json.dumps({"cells": written, "metadata": {}, "nbformat": 4}).encode()
    assert len(lint_source(parse_source("a.ipynb", data), [load_rule("frozen-recomputed")])[0]) == found
