"""A finding that a good reviewer would not keep is a nit or is not made: the fact in the file that decides it, rule by rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linted import OneRule

from unchoke.linting.lint_engine import lint

STEP = "        loss = net(x).sum()\n        loss.backward()\n        opt.step()\n"
LOOP = f"for epoch in range(60):\n    for x in loader:\n{STEP}"


def kinds(code: str, source: str) -> list[str]:
    return [item.kind for item in OneRule(code).found(source)]


# Whatever the rule: nobody waits for a training on numbers drawn at random


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("data = TensorDataset(torch.randn(64, 3, 32, 32))", "nit"),
        ("images = torch.rand((64, 3, 32, 32))\ndata = TensorDataset(images)", "nit"),
        ("data = torchvision.datasets.FakeData(1000)", "nit"),
        ("data = torchvision.datasets.ImageFolder('photos')", "choke"),
        ("noise = torch.randn(64)\ndata = torchvision.datasets.ImageFolder('photos')", "choke"),
        ("import ours\ndata = ours.photos()", "choke"),
    ],
)
def test_data_drawn_at_random_is_a_trial(made: str, kind: str) -> None:
    head = "import torch, torchvision\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    net = "net = torch.nn.Conv2d(3, 8, 3)\nopt = torch.optim.SGD(net.parameters())\n"
    assert kinds("no-checkpoint", f"{head}{made}\nloader = DataLoader(data)\n{net}{LOOP}") == [kind]


def test_a_data_set_class_that_draws_its_samples_is_a_trial() -> None:
    owner = "class Data(Dataset):\n    def __getitem__(self, i):\n        return {}\n"
    head = "import torch\nfrom PIL import Image\nfrom torch.utils.data import DataLoader, Dataset\n"
    rest = f"loader = DataLoader(Data())\nnet = torch.nn.Conv2d(3, 8, 3)\nopt = torch.optim.SGD(net.parameters())\n{LOOP}"
    assert kinds("no-checkpoint", head + owner.format("torch.rand(3, 32, 32)") + rest) == ["nit"]
    assert kinds("no-checkpoint", head + owner.format("torch.rand(3, 4) * load(Image.open(self.names[i]))") + rest) == ["choke"]
    assert kinds("no-checkpoint", head + owner.format("flipped(self.all[i], torch.rand(1) < 0.5)") + rest) == ["choke"]


def test_noise_for_a_generator_is_no_data() -> None:
    source = "import torch\nfrom ours import batches\nfor x in batches():\n    real = net(x)\n    fake = net(torch.randn(4))\n"
    found = kinds("host-sync", f"{source}    (real - fake).backward()\n    opt.step()\n    log.append(real.cuda().cpu())\n")
    assert found == ["choke"]


# CUDA


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("net.cuda()\n", "risk"),
        ("# 'cpu', or 'cuda:0' if a GPU is available\nnet.cuda()\n", "risk"),
        ("# tensors can be moved to a GPU with .cuda\nnet.cuda()\n", "risk"),
        ("net.cuda()  # move the model to GPU\n", "risk"),
        ("# put it on the GPU\nnet.cuda()\n", "risk"),
        ("# all 200,000 points at once, using a single GPU\nnet.cuda()\n", "nit"),
        ('"""Needs a CUDA card with 24 GB."""\nnet.cuda()\n', "nit"),
        ("net.cuda()\nif x.device.type != 'cuda':\n    raise ValueError(x)\n", "nit"),
        ("from lightning import Trainer\nTrainer(accelerator='gpu')\n", "risk"),
    ],
)
def test_a_file_that_is_for_a_card_may_ask_for_it(source: str, kind: str) -> None:
    assert kinds("hard-coded-cuda", f"{source}import torch\n") == [kind]


@pytest.mark.parametrize(("name", "kind"), [("train.py", "risk"), ("kernels/conv.py", "nit"), ("multi_gpu/train.py", "nit")])
def test_a_folder_may_say_that_cuda_is_the_subject(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "a" / "b" / name
    path.parent.mkdir(parents=True)
    path.write_text("import torch\nnet.cuda()\n")
    assert [finding.kind for finding in lint([path], nits=True).findings] == [kind]


# Waits


@pytest.mark.parametrize(
    ("loop", "kind"),
    [
        ("for x in loader:", "choke"),
        ("for i in range(20000):", "choke"),
        ("for i in range(50):", "nit"),
        ("for epoch in range(5000):", "nit"),
    ],
)
def test_a_wait_is_nothing_in_few_steps_or_beside_a_step_over_the_whole_set(loop: str, kind: str) -> None:
    steps = "    loss = net(x).sum()\n    loss.backward()\n    opt.step()\n    seen.append(loss.cuda().cpu())\n"
    assert kinds("host-sync", f"import torch\n{loop}\n{steps}") == [kind]


# Branches that are reached once


def test_compiling_where_the_loop_asks_for_it_is_once() -> None:
    loop = "import torch\nnet = Net()\nfor way in ways:\n    if {}:\n        run(torch.compile(net))\n"
    assert kinds("compile-unsafe", loop.format("way == 'compiled'")) == []
    assert kinds("compile-unsafe", loop.format("fast")) == ["choke"]


def test_a_drive_that_a_switch_asks_for_is_a_nit() -> None:
    source = "import torch\nif {}:\n    root = '/content/drive/MyDrive/photos'\nmodel.fit(read(root), epochs=9)\n"
    assert kinds("network-mount", source.format("use_drive == 'yes'")) == ["nit"]
    assert kinds("network-mount", source.format("IN_COLAB")) == ["choke"]


# Graphs


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def predict(net, loader):\n    for x in loader:\n        all.append(net(x))\n", 1),
        ("def inference(net, x):\n    while not done:\n        all.append(net(x))\n", 0),
        ("class A:\n  def forward(self, x): pass\n  def predict(self, xs):\n    for x in xs: all.append(net(x))\n", 0),
    ],
)
def test_what_decodes_step_by_step_is_run_without_gradients_by_its_callers(source: str, found: int) -> None:
    head = "import torch\nall = []\nnet = torch.nn.Linear(3, 3)\n"
    assert len(kinds("graph-kept", head + source)) == found


# What takes the place of what failed


def test_a_blank_that_is_given_in_any_case_stands_for_nothing() -> None:
    source = """\
import cv2, torch
class Data(torch.utils.data.Dataset):
    def __getitem__(self, i):
        video = {}
        try:
            frames(cv2.imread(self.names[i]))
        except OSError as error:
            video = torch.zeros(1)
        return video
"""
    assert kinds("blank-on-error", source.format("torch.zeros(1)")) == []
    assert kinds("blank-on-error", source.format("None")) == ["risk"]


def test_an_option_called_ignore_errors_is_not_that_of_a_pipeline() -> None:
    assert kinds("blank-on-error", "workers.ignore_errors(all)\n") == []
    tf = "import tensorflow as tf\nds = tf.data.Dataset.list_files('*.jpg').map(read)\n"
    assert kinds("blank-on-error", f"{tf}ds = ds.ignore_errors()\n") == ["risk"]


# Loops that visit no pixels


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("out[y, x] = image[y, x] * 2", 1),
        ("total += image[y, x, :]", 1),
        ("total += image[:, y, x].sum()", 1),
        ("total += image[y * width + x]", 1),
        ("fill(image[y, ..., x])", 0),
        ("fill(image[y, :, :, x])", 0),
        ("write(image_names[y * step + x])", 0),
    ],
)
def test_loops_over_planes_and_names_visit_no_pixels(body: str, found: int) -> None:
    source = "import cv2\nimage = cv2.imread(name)\nheight, width = image.shape[:2]\n"
    source += f"for y in range(height):\n    for x in range(width):\n        {body}\n"
    assert len(kinds("python-transform", source)) == found


# Pictures, lambdas and tables


def test_pictures_that_nothing_learns_from_are_a_folder_somebody_named() -> None:
    source = "import cv2, glob\nimages = [cv2.imread(name) for name in glob.glob('*.jpg')]\n"
    assert kinds("images-in-list", f"{source}for image in images: show(image)\n") == ["nit"]
    assert kinds("images-in-list", f"{source}model.fit(images, labels, epochs=9)\n") == ["choke"]


def test_without_a_loader_nothing_is_sent_to_workers() -> None:
    source = "import torch\nfrom torchvision import datasets\nd = datasets.MNIST('.', transform=lambda x: x)\n"
    assert kinds("unpicklable-dataset", source) == ["nit"]
    assert kinds("unpicklable-dataset", f"{source}torch.utils.data.DataLoader(d, num_workers=4)\n") == ["risk"]
    held = "import h5py\nclass A(torch.utils.data.Dataset):\n    def __init__(self): self.file = h5py.File('a.h5')\n"
    assert "risk" in kinds("unpicklable-dataset", f"import torch\n{held}    def __getitem__(self, i): return self.file[i]\n")


def test_a_search_beside_a_picture_is_a_nit() -> None:
    source = """\
from PIL import Image
from torch.utils.data import Dataset
class Cars(Dataset):
    def __getitem__(self, i):
        name = self.names[i]
        boxes = self.df[self.df.name == name]
        return {}, boxes
"""
    assert kinds("table-scan", source.format("Image.open(name)")) == ["nit"]
    assert kinds("table-scan", source.format("name")) == ["choke"]
