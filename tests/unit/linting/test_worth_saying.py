"""A finding that a good reviewer would not keep is a nit or is not made: the fact in the file that decides it, rule by rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.linted import OneRule, notebook

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
        ("import ours\ndata = ours.photos()\nnet.cuda()", "choke"),
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
    assert kinds("no-checkpoint", head + owner.format("flipped(self.all[i], torch.rand(1) < 0.5)") + rest) == ["choke"]


def test_noise_for_a_generator_is_no_data() -> None:
    source = "import torch\nfrom ours import batches\nfor x in batches():\n    real = net(x)\n    fake = net(torch.randn(4))\n"
    found = kinds("host-sync", f"{source}    (real - fake).backward()\n    opt.step()\n    log.append(real.cuda().cpu())\n")
    assert found == ["choke"]


# CUDA


LOOKS = "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n"


def test_what_the_files_beside_it_do_about_cuda_tells_whether_it_is_meant(tmp_path: Path) -> None:
    source = "import torch\nnet = torch.nn.Linear(1, 1).cuda()\n"
    (tmp_path / "script.py").write_text(source)
    (tmp_path / "notes.ipynb").write_text(notebook(source))
    found = [item.kind for item in lint([tmp_path], select=["hard-coded-cuda"]).findings]
    assert found == ["nit", "nit"], "each takes it for granted, like the other"
    (tmp_path / "other.py").write_text(LOOKS)
    assert [item.kind for item in lint([tmp_path], nits=True).findings] == ["risk", "risk"], "one of them does without"
    (tmp_path / "script.py").unlink()
    (tmp_path / "other.py").write_text("print('nothing of cards')\n")
    assert [item.kind for item in lint([tmp_path], nits=True).findings] == ["risk"], "a notebook is taken along"


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
        ("import torch2trt\nnet.cuda()\n", "nit"),
        ("import faiss\nindex = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)\nnet.cuda()\n", "nit"),
        ("def profile(net):\n    net.cuda()\n", "nit"),
        ("CARD = torch.device('cuda')\ndef main(name):\n    global CARD\n    CARD = torch.device(name)\n", "nit"),
    ],
)
def test_a_file_that_is_for_a_card_may_ask_for_it(tmp_path: Path, source: str, kind: str) -> None:
    (tmp_path / "other.py").write_text(LOOKS)
    (tmp_path / "a.py").write_text(f"{source}import torch\n")
    assert [item.kind for item in lint([tmp_path / "a.py"], select=["hard-coded-cuda"]).findings] == [kind]


@pytest.mark.parametrize(("name", "kind"), [("train.py", "risk"), ("kernels/conv.py", "nit"), ("multi_gpu/train.py", "nit")])
def test_a_folder_may_say_that_cuda_is_the_subject(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "a" / "b" / name
    path.parent.mkdir(parents=True)
    path.write_text("import torch\nnet.cuda()\n")
    (path.parent / "other.py").write_text(LOOKS)
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
    steps = "    out = net(x)\n    out.sum().backward()\n    opt.step()\n    seen.append(out.cuda().cpu())\n"
    assert kinds("host-sync", f"import torch\n{loop}\n{steps}") == [kind]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("loss.backward()\n opt.step()\n a(loss.item())\n b(top1.item())\n c(top5.item())", "nit"),
        ("a(loss.item())\n loss.backward()\n b(out.sum().item())\n fake = net(x)\n c(fake.sum().item())", "choke"),
        ("loss.backward()\n total = total + loss.detach().cpu().numpy()", "nit"),
        ("loss.backward()\n seen.append(out.detach().cpu())", "choke"),
        ("loss.backward()\n losses = {'a': loss, 'b': out.sum()}\n stats = {k: v.item() for k, v in losses.items()}", "nit"),
        ("loss.backward()\n stats = [p.grad.norm().item() for p in net.parameters()]", "choke"),
        ("loss.backward()\n state = env.step(out.cpu().numpy())", ""),
        ("loss.backward()\n if i % 9 != 8:\n  pass\n else:\n  for p in net.parameters():\n   n += p.grad.norm().item()", ""),
        ("loss.backward()\n if torch.cuda.is_available():\n  y = y.cuda()\n else:\n  y = y.cpu()", ""),
    ],
)
def test_waits_that_follow_one_another_are_one_and_a_loss_is_one_number(body: str, kind: str) -> None:
    head = (
        "import torch\nnet = net.cuda()\nfor i, (x, y) in enumerate(loader):\n out = net(x.cuda())\n loss = ask(out, y.cuda())\n"
    )
    assert kinds("host-sync", f"{head} {body}\n")[:1] == [kind][: bool(kind)]


def test_a_function_that_makes_its_optimizer_is_a_whole_training_and_no_step() -> None:
    step = "    loss = net(x.cuda())\n    loss.backward()\n    opt.step()\n    print([p.grad.item() for p in net.parameters()])\n"
    assert kinds("host-sync", f"import torch\ndef train(x):\n{step}engine.run(train)\n") == ["choke"]
    made = "    opt = torch.optim.SGD(net.parameters())\n"
    assert kinds("host-sync", f"import torch\ndef train(x):\n{made}{step}spawn(train)\n") == []


# What is soon run again, or never runs


@pytest.mark.parametrize(
    ("head", "loop", "kind"),
    [
        ("", "for epoch in range(60):\n    for x in loader:\n", "nit"),  # of what is not said
        ("card = 'cuda'\n", "for epoch in range(60):\n    for x in loader:\n", "choke"),
        ("", "for epoch in range(600):\n    if True:\n", "nit"),  # the whole set in one step
        ("", "for epoch in range(60):\n    if stalled():\n        break\n    for x in loader:\n", "nit"),
        ("rows = sklearn.datasets.fetch_california_housing()\n", "for epoch in range(60):\n    for x in loader:\n", "nit"),
        ("rows = numpy.loadtxt(tarfile.open('a'))\n", "for step in range(9000):\n    if True:\n", "nit"),
        ("", "for step in range(9000):\n    if True:\n", "nit"),
        ("card = 'cuda'\n", "for step in range(9000):\n    if True:\n", "choke"),
        ("", "for step in range(20_000):\n    if True:\n", "choke"),
    ],
)
def test_a_short_run_needs_no_checkpoint(head: str, loop: str, kind: str) -> None:
    modules = "import numpy, sklearn.datasets, sklearn.preprocessing, tarfile, torch\n"
    names = "names = sklearn.preprocessing.LabelEncoder()\n"
    assert kinds("no-checkpoint", f"{modules}{names}{head}{loop}{STEP}") == [kind]


def test_what_a_constant_leaves_out_is_not_said() -> None:
    fit = "card = 'cuda'\nif {}:\n    model.fit(x, y, epochs=500, verbose=0)\n"
    assert kinds("no-checkpoint", "import ours\nTRAIN = False\n" + fit.format("TRAIN")) == []
    assert kinds("no-checkpoint", "import ours\nTRAIN = True\n" + fit.format("TRAIN")) == ["choke"]
    assert kinds("no-checkpoint", "import ours\n" + fit.format("ours.TRAIN")) == ["choke"]


def test_iterations_per_epoch_are_no_epochs() -> None:
    inner = "    for _ in range(iter_per_epoch):\n        for x in tasks:\n    " + STEP.replace("\n", "\n    ").rstrip(" ")
    assert kinds("no-checkpoint", f"import torch\niter_per_epoch = 190\nfor epoch in range(most):\n{inner}") == []


def test_a_reader_that_ends_is_made_anew() -> None:
    loop = "for epoch in range(60):\n    loader = DataLoader({})\n    for x in loader:\n" + STEP
    head = "import torch\nfrom torch.utils.data import DataLoader\nfrom ours import reader\n"
    assert kinds("workers-restarted", head + loop.format("reader(path, num_epochs=1)")) == []
    assert kinds("workers-restarted", head + loop.format("reader(path)")) == ["choke"]


# Pictures


def test_who_writes_of_bgr_knows_of_it() -> None:
    source = "import cv2\nfrom PIL import Image\n{}Image.fromarray(cv2.imread('a.png')).save('b.png')\n"
    assert kinds("bgr-rgb", source.format("")) == ["risk"]
    assert kinds("bgr-rgb", source.format("# stays BGR\n")) == ["nit"]


def test_text_goes_into_no_network() -> None:
    loop = "def evaluate(model, lines):\n    for line in lines:\n        {}\n"
    assert len(kinds("no-inference-mode", "import torch\n" + loop.format("print(model(line))"))) == 1
    assert kinds("no-inference-mode", "import torch\n" + loop.format("print(model(' '.join(line)))")) == []
    assert kinds("no-inference-mode", "import torch\n" + loop.format("logger.log_model(line)")) == []


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


# What the file shows to be another case


@pytest.mark.parametrize(("last", "found"), [("", 1), ("imwrite(out / name, net.predict(image))", 0)])
def test_a_generator_that_writes_results_is_no_data_set(last: str, found: int) -> None:
    asked = "for n in names:\n        if os.path.exists(n): break\n"
    source = f"import os, cv2\ndef run(names):\n  for name in names:\n    image = cv2.imread(name)\n    {asked}    {last}\n"
    source += "    yield name, image\n"
    assert len(kinds("stat-per-sample", source)) == found


def test_a_folder_that_is_made_where_it_is_missing_is_output() -> None:
    source = "import os\nfrom torch.utils.data import Dataset\nclass Data(Dataset):\n  def __getitem__(self, i):\n"
    source += "    if not os.path.exists(self.out): {}\n    return i\n"
    assert kinds("stat-per-sample", source.format("return None")) == ["nit"]
    assert kinds("stat-per-sample", source.format("os.makedirs(self.out)")) == []


@pytest.mark.parametrize(("options", "kind"), [("", "choke"), (", overfit_batches=1", "nit"), (", fast_dev_run=True", "nit")])
def test_a_trial_of_lightning_needs_no_checkpoint(options: str, kind: str) -> None:
    fit = f"trainer = pl.Trainer(max_epochs=90, enable_checkpointing=False{options})\ntrainer.fit(net)\n"
    head = "import torch, pytorch_lightning as pl\nnet = {}\n"
    assert kinds("no-checkpoint", head.format("torch.nn.Linear(64, 64)") + fit) == [kind]
    assert kinds("no-checkpoint", head.format("torch.nn.Linear(1, 1)") + fit) == ["nit"]


def test_few_steps_that_are_counted_need_no_checkpoint() -> None:
    loop = "import torch\ncard = 'cuda'\nfor epoch in range(50):\n    for _ in range({}):\n" + STEP
    assert kinds("no-checkpoint", loop.format(100)) == ["nit"]
    assert kinds("no-checkpoint", loop.format(1000)) == ["choke"]


def test_advice_is_for_the_framework_at_hand() -> None:
    loop = "card = 'cuda'\nfor epoch in range(50):\n    for x in loader:\n        model.train_on_batch(x)\n"
    torch_fix, keras_fix = (OneRule("no-checkpoint").found(f"import {name}\n{loop}")[0].hit.fix for name in ("torch", "keras"))
    assert "torch.save" in torch_fix
    assert "CheckpointManager" in keras_fix
    trainer = "import lightning as pl\ntrainer = pl.Trainer(accelerator='gpu', devices={})\n"
    listed, counted = (OneRule("hard-coded-cuda").found(trainer.format(item))[0].hit.fix for item in ("[0]", "1"))
    assert "auto" in counted
    assert "auto" not in listed


def test_masks_are_warped_with_their_pictures() -> None:
    head = "from tensorflow.keras.preprocessing.image import ImageDataGenerator\nwarp = ImageDataGenerator(rotation_range=9)\n"
    alone = OneRule("heavy-augmentation").found(head + "model.fit(warp.flow(x), epochs=9)\n")
    paired = OneRule("heavy-augmentation").found(head + "model.fit(zip(warp.flow(x, seed=1), warp.flow(y, seed=1)), epochs=9)\n")
    assert "`RandomRotation`" in alone[0].hit.fix
    assert "`RandomRotation`" not in paired[0].hit.fix


@pytest.mark.parametrize(("told", "kind"), [("", "choke"), ("        ours.losses(batch)\n", "nit")])
def test_what_unseen_code_puts_under_a_key_may_be_a_number(told: str, kind: str) -> None:
    loop = f"for x in loader:\n        batch = net(x)\n{told}        all.append(batch['loss'])\n        opt.step()\n"
    step = "        batch['total'].backward()\n"
    source = (
        f"import torch, ours\nnet = torch.nn.Linear(3, 3)\ndef train(loader):\n    all = []\n    {loop}{step}    return all\n"
    )
    assert kinds("graph-kept", source) == [kind]


def test_reads_that_are_alike_are_turned_round_together() -> None:
    shown = "image = cv2.imread(a)\n{}\nimage = cv2.imread(b)\nplt.imshow(image)\n"
    head = "import cv2\nimport matplotlib.pyplot as plt\n"
    one, *others = OneRule("bgr-rgb").found(head + shown.format("plt.imshow(image)"))
    assert not others
    assert one.hit.evidence["lines"] == [3, 5]
    assert kinds("bgr-rgb", head + shown.format("train.append(image)")) == ["nit"]
    assert kinds("bgr-rgb", head + shown.format("image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)")) == ["risk"]


def test_a_benchmark_of_cards_names_cards() -> None:
    assert kinds("hard-coded-cuda", "import torch\nfrom torch.utils.benchmark import Timer\nx = net.cuda()\nTimer('x')\n") == [
        "nit"
    ]


def test_a_step_that_waits_elsewhere_too_waits_in_any_case() -> None:
    source = "import torch\nnet = torch.nn.Linear(3, 3).cuda()\n{}for epoch in range(60):\n    for x in loader:\n"
    source += "        out = net(x)\n        all.append(out.cpu())\n        out.sum().backward()\n        opt.step()\n{}"
    assert kinds("host-sync", source.format("", "")) == ["choke"]
    helper = "def keep(out):\n    seen.append(out.cpu())\n"
    assert set(kinds("host-sync", source.format(helper, "        keep(out)\n"))) == {"nit"}


@pytest.mark.parametrize(
    ("own", "kind"), [("", "choke"), ("  def __len__(self): return len(self.data) // self.batch_size\n", "nit")]
)
def test_a_loader_that_counts_its_own_batches_may_leave_some_out(own: str, kind: str) -> None:
    loader = f"import keras\nclass Loader(keras.utils.Sequence):\n  def __init__(self, data, batch_size): pass\n{own}"
    made = "train = Loader(train_data, batch_size=8)\nvalid = Loader(valid_data, batch_size=1)\n"
    assert kinds("eval-batch", f"{loader}{made}model.fit(train, validation_data=valid, epochs=40)\n") == [kind]
