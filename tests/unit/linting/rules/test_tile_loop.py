"""Networks called on one tile at a time: cases beside the specimens."""

from __future__ import annotations

import json

import pytest
from tests.linted import OneRule, each

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import lint_source
from unchoke.linting.rules import load_rule

HEAD = """
import cv2, torch, timm, numpy as np
import tensorflow as tf
from torch import nn
from torchvision import models
model = timm.create_model("resnet18").eval()
"""


lines = OneRule("tile-loop", HEAD).texts


@each(
    "source",
    [
        "for tile in tiles:\n    out.append(model(tile.unsqueeze(0)))",
        "for i, patch in enumerate(tqdm(patches)):\n    out[i] = model(patch[None].cuda())",
        "for crop in crops:\n    x = torch.unsqueeze(transform(crop), 0).to(device)\n    out.append(model(x))",
        "for w in windows:\n    out.append(model.predict(np.expand_dims(read(w), axis=0)))",
        "for frame in frames:\n    out.append(model(tf.expand_dims(frame, 0)))",
        "for frame in frames:\n    out.append(model.predict(np.array([frame])))",
        "for view in views:\n    total = total + model(view[None, ...])",
        "for y in range(0, h, 256):\n    for x in range(0, w, 256):\n        p = model(image[:, y : y + s, x : x + s][None])",
        "for k in range(n):\n    part = image[k * 64 : (k + 1) * 64, :64]\n    p = model.predict(part.reshape(1, 64, 64, 3))",
        "out = torch.cat([model(t.unsqueeze(0)) for t in tiles])",
        "for i in range(n):\n    feats.append(model(tiles[:, i]))",
        "for i in range(n):\n    p = model(patches[i].unsqueeze(0))",
        "for t in tiles.unbind(1):\n    feats.append(model(t))",
        "for i in range(len(tiles)):\n    p = model(tiles[i : i + 1])",
        "for k in range(4):\n    x = torch.rot90(image, k, [1, 2])\n    out = out + model(x.unsqueeze(0))",
        "for tile in tiles:\n    p = model.predict(tile.reshape((1,) + tile.shape))",
        "for box in boxes:\n    x = prep(photo.crop(box)).unsqueeze(0)\n    scores.append(model(x))",
        "for tile in tiles:\n    for net in (first_model, second_model):\n        p = net(tile.unsqueeze(0))",
    ],
)
def test_one_at_a_time_is_reported_once(source: str) -> None:
    assert len(lines(source)) == 1


@each(
    "source",
    [
        "for tiles in loader:\n    out.append(model(tiles))",
        "for patch in patch_loader:\n    out.append(model(patch))",
        "for path in paths:\n    out.append(model(load(path).unsqueeze(0)))",
        "for _, row in data_frame.iterrows():\n    out.append(model(load(row.file).unsqueeze(0)))",
        "x = torch.stack([t for t in tiles])\nout = model(x)",
        "for start in range(0, len(tiles), 16):\n    out.append(model(torch.stack(tiles[start : start + 16])))",
        "for chunk in np.array_split(tiles, 10):\n    out.append(model.predict(chunk))",
        "for m in models_list:\n    out += m(tile.unsqueeze(0))",
        "for ax, tile in zip(axes, tiles):\n    ax.set_title(model(tile.unsqueeze(0)).argmax())",
        "for tile in tiles[:4]:\n    print(model(tile.unsqueeze(0)))",
        "for frame in camera:\n    show(model(frame.unsqueeze(0)))",
        "hidden = None\nfor frame in frames:\n    hidden = rnn_net(frame.unsqueeze(0), hidden)",
        "for tile in tiles:\n    batch.append(tile.unsqueeze(0))\nout = model(torch.cat(batch))",
        "for fold in range(5):\n    out += load_net(fold)(tile[None])",
        "while True:\n    ok, frame = cap.read()\n    show(model(torch.from_numpy(frame).unsqueeze(0)))",
        "for epoch in range(3):\n    for patch, y in batches:\n        loss = crit(model(patch), y)",
        "for path in files:\n    x = apply_window(read(path))\n    out.append(model(x[None]))",
    ],
)
def test_batches_files_and_what_cannot_be_gathered_are_not(source: str) -> None:
    assert lines(source) == []


def test_cells_of_a_notebook_are_one_program() -> None:
    cells = ["import timm, torch\nnet = timm.create_model('resnet18')", "for t in tiles:\n    s.append(net(t[None]))"]
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells]
    book = json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    found, _ = lint_source(parse_source("book.ipynb", book.encode()), [load_rule("tile-loop")])
    assert [(item.place.cell, item.place.line) for item in found] == [(2, 2)]


@each(
    ("body", "told"),
    [
        (
            "for i in range(x_test.shape[0]):\n    out.append(model.predict(np.expand_dims(x_test[i], 0)))",
            "model.predict(x_test, batch",
        ),
        (
            "for p in paths:\n    x = load_img(p, target_size=(224, 224))\n    out.append(model.predict(np.array([x])))",
            "np.concatenate",
        ),
        ("for p in paths:\n    x = tf(Image.open(p)).unsqueeze(0)\n    out.append(model(x))", "torch.cat"),
        ("for x in x_test:\n    y = model.predict(x.reshape(1, 28, 28))", "np.concatenate"),
        (
            "from torchvision import datasets\ntest = datasets.ImageFolder('a')\nfor x, y in test:\n    z = model(x[None])",
            "torch.cat",
        ),
        ("for f in files:\n    print(learn.predict(f))", "learn.get_preds(dl=learn.dls.test_dl(files))"),
    ],
)
def test_whole_pictures_of_one_size_are_batched(body: str, told: str) -> None:
    head = "import numpy as np\nfrom PIL import Image\nfrom torchvision import transforms\nfrom fastai.vision.all import *\n"
    head += "from tensorflow.keras.preprocessing.image import load_img\nlearn = load_learner('a')\n"
    head += "tf = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])\n"
    (item,) = OneRule("tile-loop").found(head + body)
    assert told in item.finding.fix
    assert "5.7" not in item.finding.expected_gain


@each(
    "body",
    [
        "for i in range(5):\n    out.append(model.predict(np.expand_dims(x[i], 0)))",
        "ids = np.random.choice(100, size=4)\nfor i in ids:\n    out.append(model.predict(np.expand_dims(x[i], 0)))",
        "for i in range(n):\n    plt.imshow(model.predict(np.expand_dims(x[i], 0))[0])",
        "def show(a):\n    plt.imshow(a)\nfor i in range(n):\n    show(model.predict(np.expand_dims(x[i], 0))[0])",
    ],
)
def test_a_few_that_are_looked_at_are_left_alone(body: str) -> None:
    assert OneRule("tile-loop").found("import numpy as np\nimport matplotlib.pyplot as plt\n" + body) == []


@pytest.mark.parametrize(
    "source",
    [
        "last = None\nfor frame in frames:\n    both = join(last, frame).unsqueeze(0)\n    out = model(both)\n    last = out[0]",
        "for frame_idx in range(n):\n    states = hidden[:, frame_idx]\n    out.append(model(mix(token[None], states)))",
    ],
    ids=["carried over", "a step of the whole batch"],
)
def test_rounds_that_cannot_be_put_together_are_left_alone(source: str) -> None:
    assert lines(source) == []


def test_a_position_carried_over_is_no_dependence() -> None:
    body = "y = 0\nfor tile in tiles:\n    piece = shifted(tile, y)\n    out.append(model(piece[None]))\n    y = y + 8"
    assert len(lines(body)) == 1
