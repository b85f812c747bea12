"""A finding that a good reviewer would not keep is a nit or is not made: the fact in the file that decides it, rule by rule."""

from __future__ import annotations

from pathlib import Path

from tests.linted import OneRule, each, notebook

from unchoke.code.source import parse_source
from unchoke.linting.lint_engine import chosen_rules, lint, lint_source
from unchoke.linting.lint_text import render_finding
from unchoke.linting.rules import all_rules

STEP = "        loss = net(x).sum()\n        loss.backward()\n        opt.step()\n"
LOOP = f"for epoch in range(160):\n    for x in loader:\n{STEP}"


def kinds(code: str, source: str) -> list[str]:
    return [item.kind for item in OneRule(code).found(source)]


# Whatever the rule: nobody waits for a training on numbers drawn at random


@each(
    ("made", "kind"),
    [
        ("data = TensorDataset(torch.randn(64, 3, 32, 32))", "nit"),
        ("images = torch.rand((64, 3, 32, 32))\ndata = TensorDataset(images)", "nit"),
        ("data = torchvision.datasets.FakeData(1000)", "nit"),
        ("data = torchvision.datasets.ImageFolder('photos')", "choke"),
        ("noise = torch.randn(64)\ndata = torchvision.datasets.ImageFolder('photos')", "choke"),
        ("import ours\ndata = ours.photos()\nnet.cuda()", "nit"),
    ],
)
def test_data_drawn_at_random_is_a_trial(made: str, kind: str) -> None:
    head = "import torch, torchvision\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    net = "net = torch.nn.Conv2d(3, 8, 3)\nopt = torch.optim.SGD(net.parameters())\n"
    assert kinds("no-checkpoint", f"{head}{made}\nloader = DataLoader(data)\n{net}{LOOP}") == [kind]


def test_a_data_set_class_that_draws_its_samples_is_a_trial() -> None:
    owner = "class Data(Dataset):\n    def __getitem__(self, i):\n        return {}\n"
    head = "import torch\nfrom PIL import Image\nfrom torch.utils.data import DataLoader, Dataset\n"
    rest = "card = 'cuda'\nloader = DataLoader(Data())\n"
    rest += f"net = torch.nn.Conv2d(3, 8, 3)\nopt = torch.optim.SGD(net.parameters())\n{LOOP}"
    assert kinds("no-checkpoint", head + owner.format("torch.rand(3, 32, 32)") + rest) == ["nit"]
    assert kinds("no-checkpoint", head + owner.format("torch.rand(3, 4) * load(Image.open(self.names[i]))") + rest) == ["choke"]


# CUDA


LOOKS = "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
TRAINS = "import torch\nnet = torch.nn.Linear(1, 1){}\nfor x in data:\n    net(x).backward()\n    opt.step()\n"


def test_hard_coded_device_in_notebook_and_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAINS.format(".cuda()"))
    (tmp_path / "notes.ipynb").write_text(notebook(TRAINS.format(".cuda()")))
    asked = {"select": ["hard-coded-cuda"]}
    assert [item.kind for item in lint([tmp_path], **asked).findings] == ["nit", "nit"], "each takes it for granted"
    (tmp_path / "other.py").write_text(LOOKS)
    assert [item.kind for item in lint([tmp_path], **asked).findings] == ["risk", "nit"], "one of them does without"


@each(
    ("source", "kind"),
    [
        (TRAINS.format(".cuda()"), "risk"),
        ("import torch\nnet.cuda()\n", "nit"),
        ("# tensors can be moved to a GPU with .cuda\n" + TRAINS.format(".cuda()"), "nit"),
        ("import torch2trt\n" + TRAINS.format(".cuda()"), "nit"),
        ("import faiss\n" + TRAINS.format(".cuda()"), "nit"),
        ("from lightning import Trainer\nTrainer(accelerator='gpu').fit(net)\n", "risk"),
    ],
)
def test_a_notebook_that_is_about_cards_may_ask_for_one(tmp_path: Path, source: str, kind: str) -> None:
    (tmp_path / "a.ipynb").write_text(notebook(source))
    assert [item.kind for item in lint([tmp_path], select=["hard-coded-cuda"]).findings] == [kind]


def test_a_folder_may_say_that_cuda_is_the_subject(tmp_path: Path) -> None:
    path = tmp_path / "multi_gpu" / "train.ipynb"
    path.parent.mkdir()
    path.write_text(notebook(TRAINS.format(".cuda()")))
    assert [item.kind for item in lint([path], select=["hard-coded-cuda"]).findings] == ["nit"]


# What is soon run again, or never runs


def test_what_a_constant_leaves_out_is_not_said() -> None:
    fit = "card = 'cuda'\nif {}:\n    model.fit(x, y, epochs=500, verbose=0)\n"
    assert kinds("no-checkpoint", "import ours\nTRAIN = False\n" + fit.format("TRAIN")) == []
    assert kinds("no-checkpoint", "import ours\nTRAIN = True\n" + fit.format("TRAIN")) == ["nit"]
    assert kinds("no-checkpoint", "import ours\n" + fit.format("ours.TRAIN")) == ["nit"]


def test_iterations_per_epoch_are_no_epochs() -> None:
    inner = "    for _ in range(iter_per_epoch):\n        for x in tasks:\n    " + STEP.replace("\n", "\n    ").rstrip(" ")
    assert kinds("no-checkpoint", f"import torch\niter_per_epoch = 190\nfor epoch in range(most):\n{inner}") == []


def test_a_reader_that_ends_is_made_anew() -> None:
    loop = "for epoch in range(60):\n    loader = DataLoader({})\n    for x in loader:\n" + STEP
    head = "import torch\nfrom torch.utils.data import DataLoader\nfrom ours import reader\n"
    assert kinds("workers-restarted", head + loop.format("reader(path, num_epochs=1)")) == []
    assert kinds("workers-restarted", head + loop.format("reader(path)")) == ["nit"]
    assert kinds("workers-restarted", head + loop.format("reader(path), num_workers=2")) == ["choke"]


# Pictures


def test_text_goes_into_no_network() -> None:
    loop = "def evaluate(model, lines):\n    for line in lines:\n        {}\n"
    assert len(kinds("no-inference-mode", "import torch\n" + loop.format("print(model(line))"))) == 1
    assert kinds("no-inference-mode", "import torch\n" + loop.format("print(model(' '.join(line)))")) == []
    assert kinds("no-inference-mode", "import torch\n" + loop.format("logger.log_model(line)")) == []


# Branches that are reached once


def test_compiling_where_the_loop_asks_for_it_is_once() -> None:
    loop = "import torch\nnet = Net()\nfor way in ways:\n    if {}:\n        run(torch.compile(net))\n"
    assert kinds("compile-unsafe", loop.format("way == 'compiled'")) == []
    assert kinds("compile-unsafe", loop.format("fast")) == ["nit"]


def test_a_drive_that_a_switch_asks_for_is_a_nit() -> None:
    source = "import torch\nif {}:\n    root = '/content/drive/MyDrive/photos'\nmodel.fit(read(root), epochs=9)\n"
    assert kinds("network-mount", source.format("use_drive == 'yes'")) == ["nit"]
    assert kinds("network-mount", source.format("IN_COLAB")) == ["choke"]


# Graphs


@each(
    ("source", "found"),
    [
        ("def predict(net, loader):\n    for x in loader:\n        all.append(net(x))\n", 1),
        ("def inference(net, x):\n    while not done:\n        all.append(net(x))\n", 0),
        ("class A:\n  def forward(self, x): pass\n  def predict(self, xs):\n    for x in xs: all.append(net(x))\n", 0),
    ],
)
def test_stepwise_decoding_keeps_no_graph(source: str, found: int) -> None:
    head = "import torch\nall = []\nnet = torch.nn.Linear(3, 3)\n"
    assert len(kinds("graph-kept", head + source)) == found


# What takes the place of what failed


def test_blank_given_in_any_case_is_no_risk() -> None:
    source = """\
import cv2, torch
class Data(torch.utils.data.Dataset):
    def __getitem__(self, i):
        video = {}
        try:
            frames(cv2.imread(self.names[i]))
        except Exception:
            video = torch.zeros(1)
        return video
"""
    assert kinds("blank-on-error", source.format("torch.zeros(1)")) == []
    assert kinds("blank-on-error", source.format("None")) == ["risk"]


# Loops that visit no pixels


@each(
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


def test_without_a_loader_nothing_is_sent_to_workers() -> None:
    source = "import torch\nfrom torchvision import datasets\nd = datasets.MNIST('.', transform=lambda x: x)\n"
    assert kinds("unpicklable-dataset", source) == ["nit"]
    assert kinds("unpicklable-dataset", f"{source}torch.utils.data.DataLoader(d, num_workers=4)\n") == ["risk"]
    held = "import h5py\nclass A(torch.utils.data.Dataset):\n    def __init__(self): self.file = h5py.File('a.h5')\n"
    item = "    def __getitem__(self, i): return self.file[i]\n"
    assert kinds("unpicklable-dataset", f"import torch\n{held}{item}") == ["nit"]
    assert kinds("unpicklable-dataset", f"import torch\n{held}{item}torch.utils.data.DataLoader(A(), num_workers=2)\n") == [
        "risk"
    ]


# What the file shows to be another case


@each(("last", "found"), [("", 1), ("imwrite(out / name, net.predict(image))", 0)])
def test_a_generator_that_writes_results_is_no_data_set(last: str, found: int) -> None:
    asked = "for n in names:\n        if os.path.exists(n): break\n"
    source = f"import os, cv2\ndef run(names):\n  for name in names:\n    image = cv2.imread(name)\n    {asked}    {last}\n"
    source += "    yield name, image\n"
    assert len(kinds("stat-per-sample", source)) == found


def test_advice_is_for_the_framework_at_hand() -> None:
    loop = "card = 'cuda'\nfor epoch in range(50):\n    for x in loader:\n        model.train_on_batch(x)\n"
    torch_fix, keras_fix = (OneRule("no-checkpoint").found(f"import {name}\n{loop}")[0].hit.fix for name in ("torch", "keras"))
    assert "torch.save" in torch_fix
    assert "model.save" in keras_fix
    trainer = "import lightning as pl\ntrainer = pl.Trainer(accelerator='gpu'{})\n"
    listed, alone = (OneRule("hard-coded-cuda").found(trainer.format(item))[0].hit.fix for item in (", devices=[0]", ""))
    assert 'accelerator="auto", devices=1' in listed
    assert "devices" not in alone


def test_masks_are_warped_with_their_pictures() -> None:
    head = "from tensorflow.keras.preprocessing.image import ImageDataGenerator\nwarp = ImageDataGenerator(rotation_range=9)\n"
    alone = OneRule("heavy-augmentation").found(head + "model.fit(warp.flow(x), epochs=9)\n")
    paired = OneRule("heavy-augmentation").found(head + "model.fit(zip(warp.flow(x, seed=1), warp.flow(y, seed=1)), epochs=9)\n")
    assert "`RandomRotation`" in alone[0].hit.fix
    assert "`RandomRotation`" not in paired[0].hit.fix


# Which rules are shown at all


PROVEN = {
    "anomaly-mode", "blank-on-error", "cache-after-random", "dataset-in-notebook", "decoded-for-labels", "frozen-gradients",
    "frozen-recomputed", "graph-kept", "hard-coded-cuda", "heavy-augmentation", "model-in-dataset", "network-mount",
    "no-checkpoint", "no-clear-session", "no-main-guard", "no-mixed-precision", "no-workers", "oversized-decode",
    "parsed-per-sample", "python-transform", "repeated-decode", "tile-loop", "unpicklable-dataset", "unsafe-load",
    "workers-restarted", "list-per-sample",
}  # fmt: skip


def test_a_rule_without_a_record_is_a_nit() -> None:
    shown = {loaded.rule.code for loaded in all_rules() if loaded.rule.kind != "nit"}
    assert shown == PROVEN


@each(
    ("rounds", "data", "kind"),
    [
        ("for epoch in range(160):", "datasets.ImageFolder('photos')", "choke"),
        ("for epoch in range(90):", "datasets.ImageFolder('photos')", "nit"),
        ("for epoch in range(160):", "datasets.CIFAR10('.')", "nit"),
        ("for epoch in range(160):\n    if stalled(): break", "datasets.ImageFolder('photos')", "nit"),
        ("# %%\n# %%\nfor epoch in range(160):", "datasets.ImageFolder('photos')", "nit"),
    ],
)
def test_checkpoint_is_asked_for_if_training_takes_hours(rounds: str, data: str, kind: str) -> None:
    head = "import torch\nfrom torchvision import datasets\nloader = torch.utils.data.DataLoader("
    assert kinds("no-checkpoint", f"{head}{data}, num_workers=2)\n{rounds}\n    for x in loader:\n{STEP}") == [kind]


@each(
    ("head", "count", "kind"),
    [
        ("net = torch.nn.Conv2d(3, 8, 3)\n", 20_000, "choke"),
        ("net = torch.nn.Conv2d(3, 8, 3)\n", 9_000, "nit"),
        ("net = torch.nn.Linear(3, 8)\n", 20_000, "nit"),
    ],
)
def test_very_many_steps_of_convolutions_take_hours(head: str, count: int, kind: str) -> None:
    loop = f"for step in range({count}):\n    if True:\n{STEP}"
    assert kinds("no-checkpoint", f"import torch\n{head}{loop}") == [kind]


@each(
    ("kept", "kind"), [("all.append(loss)", "choke"), ("all.append(info['loss'])", "nit"), ("all.append(ours.loss(out))", "nit")]
)
def test_a_graph_that_is_kept_has_to_be_proven(kept: str, kind: str) -> None:
    step = "        out = net(x)\n        info = ours.step(out)\n        loss = out.mean()\n        loss.backward()\n"
    step += f"        {kept}\n"
    head = "import torch, ours\nnet = torch.nn.Linear(3, 3)\ndef train(loader):\n    all = []\n    for x in loader:\n"
    assert set(kinds("graph-kept", f"{head}{step}        opt.step()\n    return all\n")) <= {kind}
    assert kinds("graph-kept", f"{head}{step}        opt.step()\n    return all\n") or kind == "nit"


def test_a_dict_of_tensors_is_detached_one_by_one() -> None:
    source = """\
import lightning as pl, torch
class Net(pl.LightningModule):
    def shared(self, x):
        loss = torch.nn.functional.mse_loss(self.net(x), x)
        return {"loss": loss, "seen": 1}
    def training_step(self, batch, i):
        info = self.shared(batch)
        self.outputs.append(info)
        return info
"""
    (found,) = OneRule("graph-kept").found(source)
    assert found.kind == "choke"
    assert found.hit.fix == 'keep `{**info, "loss": info["loss"].detach()}`'


# What a fifth draw from strangers' code showed


def test_many_windows_may_come_of_one_decode_in_a_generator() -> None:
    body = "image = cv2.imread(path)\n        {} image[y : y + TILE, x : x + TILE]\n"
    head = "import cv2\nTILE = 256\n"
    one = f"{head}class Tiles(Dataset):\n    def __getitem__(self, i):\n        path, y, x = self.rows[i]\n        "
    many = f"{head}def tiles(rows):\n    for path, y, x in rows:\n        "
    assert kinds("oversized-decode", one + body.format("return")) == ["choke"]
    assert kinds("oversized-decode", many + body.format("yield")) in ([], ["nit"])


@each(
    ("error", "does", "kind"),
    [
        ("", "cv2.imwrite(to, draw(image))", "risk"),
        (" Exception", "cv2.imwrite(to, draw(image))", "nit"),
        ("", "shapes.append(image.shape)", "nit"),
    ],
)
def test_a_hole_in_what_is_written_is_a_risk(error: str, does: str, kind: str) -> None:
    loop = f"import cv2\nfor path in paths:\n    try:\n        image = cv2.imread(path)\n        {does}\n"
    assert kinds("blank-on-error", f"{loop}    except{error}:\n        pass\n") == [kind]


@each(
    "body",
    [
        "        try:\n            name = json.load(open(name))\n        except:\n            pass\n        return name\n",
        "        for way in WAYS:\n            try:\n                return load(name, way)\n            except:\n"
        "                pass\n",
    ],
)
def test_fallbacks_lose_nothing(body: str) -> None:
    head = "import json\nclass Data(Dataset):\n    def __getitem__(self, i):\n        name = self.names[i]\n"
    assert set(kinds("blank-on-error", head + body)) <= {"nit"}


def test_gradients_that_are_only_looked_at_are_no_training() -> None:
    code = "import torch\n{}with torch.autograd.detect_anomaly():\n    for epoch in range(100):\n        for x in loader:\n    "
    step = STEP.replace("\n", "\n    ").rstrip(" ")
    assert kinds("anomaly-mode", code.format("opt = torch.optim.SGD(net.parameters())\n") + step) == ["choke"]
    assert set(kinds("anomaly-mode", code.format("") + step.replace("opt.step()", "check(x.grad)"))) <= {"nit"}


def test_rows_may_be_short_lists() -> None:
    head = "import cv2\nclass Data(Dataset):\n    def __getitem__(self, i):\n"
    head += "        mask = cv2.imread(self.masks[i])\n        h, w = 512, 512\n"
    assert kinds("python-transform", head + "        for row in mask:\n            for v in row:\n                use(v)\n") == [
        "nit"
    ]
    by_index = "        for y in range(h):\n            for x in range(w):\n                use(mask[y, x])\n"
    assert kinds("python-transform", head + by_index) == ["choke"]
    tokens = head.replace("cv2.imread(self.masks[i])", "self.masks[i]") + by_index
    assert kinds("python-transform", tokens) == ["nit"]  # nothing here is decoded


def test_the_number_of_a_batch_is_not_the_picture() -> None:
    head = "from torch.utils.data import DataLoader\nfrom torchvision.datasets import ImageFolder\n"
    head += "loader = DataLoader(ImageFolder('photos'))\n"
    assert kinds("decoded-for-labels", head + "for n, (images, labels) in enumerate(loader):\n    net(images, labels, n)\n") == []
    shown = head + "shown = tqdm(enumerate(loader))\nfor n, (images, labels) in shown:\n    net(images, labels)\n"
    assert kinds("decoded-for-labels", shown) == []
    assert kinds("decoded-for-labels", head + "for n, (images, labels) in enumerate(loader):\n    count(labels)\n") == ["choke"]


@each(("given", "kind"), [("", "choke"), (", workers=4", "nit")])
def test_workers_share_out_what_a_generator_warps(given: str, kind: str, tmp_path: Path) -> None:
    made = "from keras.preprocessing.image import ImageDataGenerator\nwarps = ImageDataGenerator(rotation_range=20)\n"
    fit = f"model.fit_generator(warps.flow_from_directory('photos'), epochs=50{given})\n"
    (tmp_path / "a.ipynb").write_text(notebook(made, fit))
    assert [item.kind for item in lint([tmp_path], select=["heavy-augmentation"]).findings] == [kind]
    assert kinds("heavy-augmentation", made + fit) == ["nit"]  # a script: what runs it may have cores in plenty


@each(("epochs", "kind"), [(10, "nit"), (100, "choke")])
def test_a_mode_for_debugging_in_a_short_trial_is_meant(epochs: int, kind: str) -> None:
    head = f"import torch\ntorch.autograd.set_detect_anomaly(True)\nfor epoch in range({epochs}):\n    for x in loader:\n"
    assert kinds("anomaly-mode", head + STEP) == [kind]


def test_a_class_that_switches_it_off_again_is_there_for_it() -> None:
    on, off = (
        f"    def {name}(self):\n        torch.autograd.set_detect_anomaly({way})\n" for name, way in (("a", True), ("b", False))
    )
    assert kinds("anomaly-mode", f"import torch\nclass Plugin:\n{on}{off}") == []
    assert kinds("anomaly-mode", f"import torch\nclass Plugin:\n{on}class Other:\n{off}optimizer = torch.optim.SGD(net)\n") != []


def test_of_three_any_may_be_the_picture() -> None:
    head = "import torch\nfrom torchvision import datasets\nmodel = torch.nn.Linear(1, 1)\n"
    head += "loader = torch.utils.data.DataLoader(datasets.ImageFolder('a'))\n"
    loop = "for n, (_, images, labels) in enumerate(loader):\n    images = images.to(device)\n    model(images)\n"
    assert kinds("decoded-for-labels", head + loop) == []
    assert kinds("decoded-for-labels", head + loop.replace("model(", "print(")) == ["choke"]


def test_gradients_off_for_another_phase_freeze_nothing() -> None:
    head = "import torch, torchvision\nclass Trainer:\n    def __init__(self, model):\n        self.model = model\n"
    head += "        self.opt = torch.optim.SGD(model.parameters(), 0.1)\n"
    head += "        self.loader = torch.utils.data.DataLoader(torchvision.datasets.ImageFolder('a'), num_workers=4)\n"
    head += "    def epoch(self, phase):\n        for x, y in self.loader:\n            if phase == 'train':\n"
    head += "                torch.set_grad_enabled(True)\n            else:\n                torch.set_grad_enabled(False)\n"
    head += "            loss = self.model(x).sum()\n            loss.backward()\n            self.opt.step()\n"
    head += "    def train(self):\n        for n in range(500):\n            self.epoch('train')\n"
    assert kinds("frozen-recomputed", head + "Trainer(torchvision.models.resnet18()).train()\n") == []


def test_device_number_given_by_the_caller_is_a_nit(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("from lib.a import move\n")
    for given, kind in (("", "risk"), ("number", "nit")):
        (tmp_path / "lib" / "a.py").write_text(f"import torch\ndef move(x, number):\n    return x.cuda({given})\n")
        found = lint([tmp_path / "lib" / "a.py"], select=["hard-coded-cuda"]).findings
        assert [item.kind for item in found] == [kind]


# A notebook that trains on its pictures shows what is at stake


@each(
    ("data", "epochs", "kind"),
    [("ImageFolder('photos')", 30, "choke"), ("ImageFolder('photos')", 2, "nit"), ("CIFAR10('data')", 30, "nit")],
)
def test_severity_in_a_notebook_that_trains_on_pictures(data: str, epochs: int, kind: str, tmp_path: Path) -> None:
    head = "import torch, torchvision\nfrom torchvision.datasets import ImageFolder, CIFAR10\n"
    head += f"loader = torch.utils.data.DataLoader({data}, num_workers=2, persistent_workers=True)\n"
    code = f"{head}for epoch in range({epochs}):\n    for x in loader:\n{STEP}"
    after = "model.eval()\nfor path in paths:\n    print(model(load(path)))\n"
    (tmp_path / "a.ipynb").write_text(notebook(code, after))
    (tmp_path / "a.py").write_text(code + after)
    found = lint([tmp_path], select=["no-inference-mode"]).findings
    assert [(Path(item.path or "").name, item.kind) for item in found] == [("a.ipynb", kind), ("a.py", "nit")]


@each(("steps", "kind"), [("", "choke"), (", steps_per_epoch=1000", "choke"), (", steps_per_epoch=100", "nit")])
def test_a_few_thousand_steps_are_over_in_minutes(steps: str, kind: str, tmp_path: Path) -> None:
    made = (
        "from keras.preprocessing.image import ImageDataGenerator\nphotos = ImageDataGenerator().flow_from_directory('photos')\n"
    )
    (tmp_path / "a.ipynb").write_text(notebook(made, f"model.fit(photos, epochs=30{steps})\n"))
    assert [item.kind for item in lint([tmp_path], select=["repeated-decode"]).findings] == [kind]


PHOTOS = "import torch\nfrom torchvision import datasets, transforms\n"
PHOTOS += "loader = torch.utils.data.DataLoader(datasets.ImageFolder('a'))\n"


@each(("after", "kind"), [("", "choke"), ("torch.save(net.state_dict(), 'net.pt')\n", "nit")])
def test_what_is_saved_in_the_end_is_not_lost_for_good(after: str, kind: str) -> None:
    assert kinds("no-checkpoint", PHOTOS + LOOP + after) == [kind]


@each(("epochs", "kind"), [(40, "choke"), (25, "nit")])
def test_a_notebook_dies_sooner(epochs: int, kind: str, tmp_path: Path) -> None:
    code = PHOTOS + LOOP.replace("160", str(epochs))
    (tmp_path / "a.ipynb").write_text(notebook(code))
    (tmp_path / "b.py").write_text(code)
    assert [item.kind for item in lint([tmp_path], select=["no-checkpoint"]).findings] == [kind, "nit"]


def test_a_file_that_measures_time_is_no_training(tmp_path: Path) -> None:
    for name in ("train.py", "benchmark_train.py"):
        (tmp_path / name).write_text(PHOTOS + LOOP)
    found = lint([tmp_path], select=["no-checkpoint"]).findings
    assert {Path(item.path or "").name: item.kind for item in found} == {"train.py": "choke", "benchmark_train.py": "nit"}


@each(("indent", "kind"), [("    ", "nit"), ("", "risk")])
def test_a_lambda_that_is_an_option(indent: str, kind: str) -> None:
    made = f"if args.scale:\n    pass\n{indent}scale = transforms.Lambda(lambda x: x / 255)\n"
    loader = "loader = torch.utils.data.DataLoader(datasets.ImageFolder('a', scale), num_workers=4)\n"
    assert kinds("unpicklable-dataset", PHOTOS + made + loader) == [kind]


@each(("body", "kind"), [("tf.io.decode_jpeg(p)", "nit"), ("tf.py_function(cv2.imread, [p], tf.uint8)", "choke")])
def test_tensorflow_runs_side_by_side_what_is_not_python(body: str, kind: str) -> None:
    read = f"import cv2\nimport tensorflow as tf\ndef read(p):\n    tf.io.decode_jpeg(p)\n    return {body}\n"
    assert kinds("no-workers", read + "train = tf.data.Dataset.list_files('a/*').map(read)\nmodel.fit(train, epochs=50)\n") == [
        kind
    ]


@each(("cut", "kind"), [("", ["choke"]), ("        loss.detach_()\n", [])])
def test_a_loss_that_was_cut_off_keeps_no_graph(cut: str, kind: list[str]) -> None:
    step = f"import torch\ntotal = 0\n{LOOP}{cut}        total = total + loss\n"
    assert kinds("graph-kept", step) == kind


def test_the_second_of_a_maximum_are_indices() -> None:
    assert kinds("graph-kept", f"import torch\nbest = []\n{LOOP}        best.append(net(x).max(1)[1])\n") == []


def test_function_that_also_trains_is_not_switched_whole() -> None:
    head = "import torch\nnet = torch.nn.Linear(1, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)\ndef epoch(loader, val):\n"
    train = "    for x in loader:\n" + STEP + "    net.eval()\n    for x in val:\n        print(net(x).argmax())\n"
    (found,) = OneRule("no-inference-mode").found(head + train + "for n in range(9):\n    epoch(a, b)\n")
    assert found.place.line == 11 and "@torch" not in str(found.hit.suggestion)


def test_one_batch_that_is_looked_at_is_no_pass() -> None:
    assert kinds("decoded-for-labels", PHOTOS + "for images, labels in loader:\n    print(labels)\n    break\n") == []


@each(("given", "told"), [("precision=32", True), ("precision=args.precision", False)])
def test_precision_that_is_an_option_is_asked_for(given: str, told: bool) -> None:
    head = "import lightning as pl, torch, torchvision\nmodel = Net(torchvision.models.resnet50())\n"
    fit = f"trainer = pl.Trainer(max_epochs=50, accelerator='gpu' if torch.cuda.is_available() else 'cpu', {given})\n"
    assert bool(kinds("no-mixed-precision", head + fit + "trainer.fit(model)\n")) is told


@each(("given", "kind"), [("num_workers=2", "risk"), ("**({'num_workers': 2} if cuda else {})", "nit")])
def test_workers_of_one_case_only(given: str, kind: str) -> None:
    code = PHOTOS.replace("('a'))", f"('a'), {given})")
    assert kinds("no-main-guard", code + "for x in loader:\n    print(x)\n") == [kind]


@each(("given", "told"), [("", True), (", random_shift=True", False)])
def test_a_data_set_that_is_told_to_augment(given: str, told: bool) -> None:
    code = "import torch, torchvision\nclass Photos(torch.utils.data.Dataset):\n"
    code += "    def __getitem__(self, i):\n        return load(i)\n"
    code += "net = torchvision.models.resnet18()\nfor p in net.parameters():\n    p.requires_grad = False\n"
    code += "net.fc = torch.nn.Linear(512, 2)\nopt = torch.optim.SGD(net.fc.parameters(), 0.1)\n"
    code += f"loader = torch.utils.data.DataLoader(Photos('a'{given}))\n"
    assert kinds("frozen-recomputed", code + LOOP) == ["choke"] * told


# Advice that fits the code beside it


def advice(code: str, source: str) -> str:
    (found,) = OneRule(code).found(source)
    return found.finding.fix


def test_workers_are_advised_with_what_would_stop_them() -> None:
    head = "from torch.utils.data import DataLoader\nfrom torchvision import transforms, datasets\n"
    made = "data = datasets.ImageFolder('photos', transforms.Lambda(lambda x: x / 255))\n"
    loop = "train = DataLoader(data, batch_size=4)\nfor epoch in range(30):\n    for x in train:\n" + STEP
    found, _ = lint_source(parse_source("a.py", (head + made + loop).encode()), chosen_rules())
    (told,) = [item.finding.fix for item in found if item.rule.code == "no-workers"]
    assert "first mend what would stop it: unpicklable-dataset (line 3)" in told and "__main__" in told


def test_given_number_is_changed_and_not_added() -> None:
    told = advice("no-workers", PHOTOS.replace("('a'))", "('a'), num_workers=0)") + LOOP)
    assert told.startswith("make `num_workers` 4 instead of 0") and "__main__" in told
    guarded = 'if __name__ == "__main__":\n    main()\n'
    assert "__main__" not in advice("no-workers", PHOTOS + LOOP + guarded)


def test_workers_do_not_find_a_notebooks_function(tmp_path: Path) -> None:
    code = PHOTOS.replace("('a'))", "('a', transform=lambda x: x), num_workers=4)")
    (tmp_path / "a.ipynb").write_text(notebook(code))
    (tmp_path / "b.py").write_text(code)
    book, script = lint([tmp_path], select=["unpicklable-dataset"]).findings
    assert ".py file that the notebook imports" in book.fix and "at module level" in script.fix


def test_each_fit_is_given_a_folder_of_its_own() -> None:
    head = "import keras\nmodel = keras.Model()\n"
    assert "a folder for each" not in advice("no-checkpoint", head + "model.fit(x, epochs=100)\n")
    assert "a folder for each `fit`" in advice("no-checkpoint", head + "model.fit(x, epochs=100)\nmodel.fit(x, epochs=100)\n")
    assert "BackupAndRestore" not in advice("no-checkpoint", head + "model.fit_generator(x, epochs=100)\n")


def test_a_risk_says_where_it_shows_and_a_nit_does_not() -> None:
    code = PHOTOS.replace("('a'))", "('a', transform=lambda x: x), num_workers=4)")
    (risk,) = OneRule("unpicklable-dataset").found(code)
    (nit,) = OneRule("unpicklable-dataset").found(code.replace("num_workers=4", "num_workers=0"))
    assert "shows on macOS, Windows, Linux from Python 3.14" in render_finding(risk)
    assert nit.kind == "nit" and "shows on" not in render_finding(nit)


def test_a_function_has_no_self_to_keep_handles_in() -> None:
    head = (
        "import rasterio\nfrom torch.utils.data import Dataset\ndef cut(path, window):\n    with rasterio.open(path) as scene:\n"
    )
    head += "        return scene.read(window=window)\nclass Tiles(Dataset):\n    def __getitem__(self, i):\n"
    told = advice("reopened-file", head + "        return cut(*self.index[i])\n")
    assert "lru_cache" in told and "self." not in told


def test_download_of_plain_data_gets_no_weights_advice() -> None:
    head = "import pickle, urllib.request\nurllib.request.urlretrieve('http://a.org/data.pkl', 'data.pkl')\n"
    told = advice("unsafe-load", head + "data = pickle.load(open('data.pkl', 'rb'))\n")
    assert "SHA-256" in told and "weights" not in told
