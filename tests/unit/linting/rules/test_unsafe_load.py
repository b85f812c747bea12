"""Loads that may run code, and the edit that stops it: cases beside the specimens."""

from __future__ import annotations

import json

from tests.linted import OneRule, each

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule

lines = OneRule("unsafe-load").lines


@each(
    ("source", "expected"),
    [
        ("import torch\ntorch.load('a.pt')", [2]),
        ("from torch import load as read\nread('a.pt')", [2]),
        ("import torch\ntorch.load('a.pt', weights_only=SAFE)", []),
        ("import torch\nSAFE = False\ntorch.load('a.pt', weights_only=SAFE)", [3]),
        ("import torch\ntorch.load('a.pt', **options)", []),
        ("import torch\ntorch.jit.load('a.pt'); torch.hub.load('a', 'b')", []),
        ("import torch\ntry:\n    torch.load(p, weights_only=True)\nexcept TypeError:\n    torch.load(p)", []),
        ("import pickle\npickle.load(open('own.pkl', 'rb'))", []),
        ("import pickle, requests\npickle.loads(requests.get(url).content)", [2]),
        ("import joblib, urllib.request\nurllib.request.urlretrieve(url, 'm.joblib')\njoblib.load('m.joblib')", [3]),
        ("import joblib\nfrom huggingface_hub import hf_hub_download as get\npath = get('a/b', 'm.pkl')\njoblib.load(path)", [4]),
        ("import numpy as np\nnp.load('a.npy')", []),
    ],
)
def test_which_loads_are_reported(source: str, expected: list[int]) -> None:
    assert lines(source) == expected


def test_a_download_by_the_shell_counts_in_a_notebook() -> None:
    cells = ["!wget -q https://example.org/forest.pkl\n", "import pickle\nmodel = pickle.load(open('forest.pkl', 'rb'))\n"]
    book = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells],
    }
    found, _ = lint_source(parse_source("a.ipynb", json.dumps(book).encode()), [load_rule("unsafe-load")])
    assert [(item.place.cell, item.place.line) for item in found] == [(2, 2)]


@each(
    ("source", "repaired"),
    [
        ("model.load_state_dict(torch.load('a.pt'))", "model.load_state_dict(torch.load('a.pt', weights_only=True))"),
        (
            "path = 'a.pt'\nstate = torch.load(path, map_location='cpu',)\nmodel.load_state_dict(state)",
            "path = 'a.pt'\nstate = torch.load(path, map_location='cpu', weights_only=True,)\nmodel.load_state_dict(state)",
        ),
        (
            "model.load_state_dict(torch.load(\n    'a.pt',\n    map_location='cpu'\n))",
            "model.load_state_dict(torch.load(\n    'a.pt',\n    map_location='cpu', weights_only=True\n))",
        ),
        (
            "é = model.load_state_dict(torch.load('a' + '.pt'))",
            "é = model.load_state_dict(torch.load('a' + '.pt', weights_only=True))",
        ),
        ("model.load_state_dict(torch.load('b.pt'))", None),
        ("model.load_state_dict(torch.load(path))", None),
        ("torch.save({'epoch': 3}, 'a.pt')\nmodel.load_state_dict(torch.load('a.pt'))", None),
        ("torch.save(optimizer.state_dict(), where)\nmodel.load_state_dict(torch.load('a.pt'))", None),
        ("def keep(it):\n    torch.save(it.state_dict(), 'a.pt')\nkeep(model)\nmodel.load_state_dict(torch.load('a.pt'))", None),
        ("model.load_state_dict(torch.load(('a.pt')))", None),
        ("model.load_state_dict(torch.load(path, weights_only=False))", None),
        ("state = torch.load(path)\nmodel.load_state_dict(state['model'])", None),
        ("model = torch.load(path)\nmodel.eval()", None),
    ],
)
def test_edit_only_if_program_wrote_the_state_it_loads(source: str, repaired: str | None) -> None:
    head = "import torch; model = torch.nn.Linear(1, 1); torch.save(model.state_dict(), 'a.pt')\n"
    found, _ = lint_source(parse_source("a.py", (head + source + "\n").encode()), [load_rule("unsafe-load")])
    edits = found[0].hit.all_edits
    assert (len(edits) == 1) is (repaired is not None)
    if repaired is not None:
        text = source.split("\n")
        place = edits[0].place
        line = text[place.line - 2]
        text[place.line - 2] = line[: place.column] + edits[0].replacement + line[place.end_column :]
        assert "\n".join(text) == repaired


@each(
    ("body", "reported"),
    [
        ("torch.save(net, path)\n    torch.load(path, weights_only=False)", False),
        ("torch.save(net, other)\n    torch.load(path, weights_only=False)", True),
        ("torch.load(path, weights_only=False)\n    torch.save(net, path)", True),
        ("urllib.request.urlretrieve(url, path)\n    torch.save(net, path)\n    torch.load(path, weights_only=False)", True),
        ("with tempfile.NamedTemporaryFile() as file:\n        fill(file)\n        torch.load(file, weights_only=False)", False),
        ("path = os.path.join(tempfile.mkdtemp(), 'a.pt')\n    torch.load(path, weights_only=False)", False),
        ("np.load(os.path.join(tempfile.mkdtemp(), 'a.npy'), allow_pickle=True)", False),
        (
            "with tempfile.NamedTemporaryFile() as file:\n        file.write(given.read())\n"
            "        torch.load(file.name, weights_only=False)",
            True,
        ),
    ],
)
def test_own_and_temporary_files_are_trusted(body: str, reported: bool) -> None:
    head = "import os, tempfile, torch, urllib.request\nimport numpy as np\ndef back(net, path, other, url, given):\n    "
    assert bool(lines(head + body)) is reported
