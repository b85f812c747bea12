"""What a notebook trains for, and on what data, as far as its code shows: no guess becomes a command."""

from __future__ import annotations

import pytest

import books
from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.notebooks.tasks import NotebookTask, read_task

FOLDERS = "from torchvision.datasets import ImageFolder\n"
KERAS = "import tensorflow as tf\nfrom tensorflow.keras.preprocessing.image import ImageDataGenerator\n"
TABLE = "import pandas as pd\ndf = pd.read_csv('beans/photos.csv')\n"
FLOW = KERAS + TABLE + "ImageDataGenerator().flow_from_dataframe(df, directory='beans/img', x_col='file', y_col='kind'"
DATASET = """
import os, torch
from PIL import Image
class Beans(torch.utils.data.Dataset):
    def __getitem__(self, i):
        return Image.open(os.path.join('beans/img', self.names[i]))
"""

ROWS = """
import os, torch
from PIL import Image
class Beans(torch.utils.data.Dataset):
    def __getitem__(self, i):
        row = self.df.iloc[i]
        image = Image.open(os.path.join('beans/img', row['file'])).convert('RGB')
        return self.transform(image), row['kind']
"""
IDS = """
import torch
from pathlib import Path
from PIL import Image
ROOT = Path('beans')
class Beans(torch.utils.data.Dataset):
    def __getitem__(self, i):
        path = ROOT / 'img' / f"{self.df.loc[i, 'image_id']}.jpg"
        kind = self.df['kind'].iloc[i]
        return Image.open(path), kind
"""


def task(*cells: str, notebook: str = "book.ipynb") -> NotebookTask:
    return read_task(Program(parse_source(notebook, books.book(cells))), notebook)


@pytest.mark.parametrize(
    ("source", "kind", "data", "options"),
    [
        (FOLDERS + "ImageFolder('hops/train')", "classes", "hops", ""),
        (FOLDERS + "ROOT = 'leaf photos'\nImageFolder(ROOT)", "classes", "'leaf photos'", ""),
        (FOLDERS + "import os\nROOT = '/data'\nImageFolder(os.path.join(ROOT, 'hops', 'train'))", "classes", "/data/hops", ""),
        (KERAS + "tf.keras.utils.image_dataset_from_directory('hops')", "classes", "hops", ""),
        ("from fastai.vision import *\nImageDataBunch.from_folder('hops', valid='val')", "classes", "hops", ""),
        (FLOW + ")", "classes", "beans/photos.csv", " --images beans/img --path file --label kind"),
        (FLOW + ", class_mode='raw')", "numbers", "beans/photos.csv", " --images beans/img --path file --target kind"),
        (TABLE + DATASET, "classes", "beans/photos.csv", " --images beans/img"),
        (TABLE + ROWS, "classes", "beans/photos.csv", " --images beans/img --path file --label kind"),
        (
            TABLE + ROWS + "loss = torch.nn.MSELoss()",
            "numbers",
            "beans/photos.csv",
            " --images beans/img --path file --target kind",
        ),
        (TABLE + IDS, "classes", "beans/photos.csv", " --images beans/img --id image_id --label kind"),
    ],
)
def test_task_and_data_are_those_that_the_code_shows(source: str, kind: str, data: str, options: str) -> None:
    assert task(source) == NotebookTask(kind, data, options)


@pytest.mark.parametrize(
    "source",
    [
        "x = 3",
        "DATA_DIR = 'data/maize'",
        TABLE + "df.groupby('a').mean()",
        FOLDERS + "ImageFolder(where)",
        FOLDERS + "import os\nos.chdir('elsewhere')\nImageFolder('hops')",
        FOLDERS + "%cd elsewhere\nImageFolder('hops')",
        KERAS + "tf.keras.utils.image_dataset_from_directory('celeba', label_mode=None)",
        TABLE + DATASET + "criterion = torch.nn.MSELoss()",
        "from torchvision import datasets\ndatasets.MNIST('data', download=True)",
    ],
)
def test_what_the_code_does_not_show_is_no_task(source: str) -> None:
    assert task(source) == NotebookTask()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("discriminator = D()\nloss = discriminator(x)\ndiscriminator.train()", "generates pictures"),
        ("def rebuild(autoencoder): return autoencoder\nautoencoder = 1", "learns to rebuild its input"),
        ("def triplet_loss(a): return triplet_loss(triplet_margin)", "compares pictures"),
        ("bboxes = bbox(x)\nnms(bboxes)", "finds boxes"),
        ("tokenizer = T()\nids = tokenizer(text)\nlen(vocab)", "reads text"),
        ("import gym\nenv = gym.make('x')\ngym.spaces", "learns from rewards"),
    ],
)
def test_unsupported_work_has_no_task(lines: str, words: str) -> None:
    assert task(FOLDERS + "ImageFolder('hops')\n" + lines) == NotebookTask(other=words)


def test_one_word_does_not_make_a_task() -> None:
    assert task(FOLDERS + "ImageFolder('hops')\ntokenizer = None").task == "classes"


def test_masks_have_a_command_only_where_scenes_are_read() -> None:
    words = "mask, masks, unet, dice, y_mask, mask_path, segmentation, jaccard, mask = range(9)\n"
    assert task(FOLDERS + "ImageFolder('camvid')\n" + words) == NotebookTask("masks")
    assert task("import rasterio\n" + FOLDERS + "ImageFolder('scenes')\n" + words) == NotebookTask("masks", "scenes")


@pytest.mark.parametrize(
    ("notebook", "written", "typed"),
    [
        ("book.ipynb", "data/hops", "data/hops"),
        ("books/book.ipynb", "data/hops", "books/data/hops"),
        ("books/book.ipynb", "../data/hops", "data/hops"),
        ("/books/book.ipynb", "data/hops", "/books/data/hops"),
        ("books/book.ipynb", "/data/hops", "/data/hops"),
    ],
)
def test_paths_are_relative_to_the_working_folder(notebook: str, written: str, typed: str) -> None:
    assert task(FOLDERS + f"ImageFolder('{written}')", notebook=notebook).data == typed
