"""What each cell does, read from its source."""

from __future__ import annotations

import pytest

import books
from unchoke.code.program import Program
from unchoke.code.source import parse_source
from unchoke.notebooks.cells import CellReading, read_cells

LOOP = """
def train_one(model, loader):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def read(*cells: str) -> list[CellReading]:
    return read_cells(Program(parse_source("book.ipynb", books.book(cells))))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("!pip install -q timm\n%pip install albumentations", "installs packages"),
        ("!wget -q http://x/y.zip\n!unzip -q y.zip -d data", "downloads, unpacks archives"),
        ("%%bash\nnvidia-smi\ndf -h", "looks at the machine"),
        ("%%writefile leaves.py\nimport torch", "writes leaves.py"),
        ("%%writefile conf.yaml\na: 1", "writes conf.yaml"),
        ("!cp -r /kaggle/input data", "copies the data"),
        ("import shutil\na = 1\nb = 2\nshutil.copytree('a', 'b')", "copies the data"),
        ("import shutil\na = 1\nb = 2\nfor f in files:\n    shutil.copy(f, 'b')", "copies the data"),
        ("import shutil\na = 1\nb = 2\nshutil.copy('best.pt', 'final.pt')", "copies files"),
        ("loss.backward()", "computes gradients"),
        ("from vgg16 import Vgg16\na = 1\nvgg = Vgg16()\nvgg.fit(batches, val, nb_epoch=3)", "trains"),
        ("from sklearn.svm import SVC\na = 1\nb = SVC()\nb.fit(x, y)", "fits"),
        ("import os\nimport numpy as np\nSEED = 1\nnp.random.seed(SEED)", "imports"),
        ("SIZE = 224\nEPOCHS = 10", "sets constants"),
        ("import pandas as pd\na = 1\nb = 2\ndf = pd.read_csv('labels.csv')\ndf.head()", "reads tables"),
        ("from PIL import Image\nbad = []\nfor p in paths:\n    Image.open(p).verify()", "checks every file, reads images"),
        ("import torch\nclass Leaves(torch.utils.data.Dataset):\n    pass\nX = 3", "defines a dataset"),
        ("import timm\nmodel = timm.create_model('resnet18')\nopt = 3\nx = 4", "builds a model"),
        ("import matplotlib.pyplot as plt\na = 1\nb = 2\nplt.plot([1, 2])", "plots"),
        ("import gc\na = 1\nb = 1\ngc.collect()", "frees memory"),
        ("print('hello')", "shows values"),
        ("%matplotlib inline", "uses magics"),
        ("# just words\n#!ls", "has comments only"),
        ("%%R\nx <- 1", "R code, not read"),
        ("%%javascript\nalert(1)", "JavaScript code, not read"),
        ("%%sql\nselect 1", "SQL code, not read"),
        ("%%cython\ncdef int x", "Cython code, not read"),
        ("x = [n * n for n in range(5)]", "computes"),
        ("", "nothing"),
        ("def f(:", "not read"),
    ],
)  # fmt: skip
def test_a_cell_is_told_in_a_few_words(source: str, words: str) -> None:
    assert read(source)[0].words == words


def test_a_function_counts_where_it_is_called() -> None:
    defined, called = read(LOOP, "for epoch in range(20):\n    train_one(model, loader)")
    assert defined.words == "defines the training"
    assert called.words == "trains"


def test_training_a_head_on_cached_features_is_told_apart() -> None:
    source = f"{LOOP}\nloader = DataLoader(TensorDataset(x, y))\ntrain_one(head, loader)"
    assert read(source)[0].told[0] == "trains on features"


def test_fitting_a_small_model_is_not_training() -> None:
    assert read("from sklearn.svm import SVC\na = 1\nb = 2\nSVC().fit(x, y)")[0].deeds[0] == "fits"
    assert read("from tensorflow import keras\na = 1\nm = keras.Sequential([])\nm.fit(x, y, epochs=9)")[0].deeds[0] == "trains"


def test_what_runs_only_if_something_is_missing_is_guarded() -> None:
    again, once = read("!unzip a.zip", "import os\nif not os.path.exists('data'):\n    shutil.unpack_archive('a.zip')")
    assert (again.guarded, once.guarded) == (False, True)


def test_cells_keep_the_numbers_of_the_file() -> None:
    assert [cell.number for cell in read("#: text", "a = 1", "#: more", "b = 2")] == [2, 4]


def test_a_function_that_calls_itself_is_read_once() -> None:
    assert read("def walk(n):\n    return walk(n - 1)", "walk(3)")[1].words == "computes"


IMAGES = "from PIL import Image\nimport os, glob\nimport numpy as np\nimport pandas as pd\nimport matplotlib.pyplot as plt\n"


@pytest.mark.parametrize(
    "source",
    [
        "X = [np.array(Image.open(f)) for f in glob.glob('data/*.png')]",
        "X = []\nfor name in os.listdir('data'):\n    X.append(Image.open('data/' + name))",
        "files = sorted(glob.glob('a/*'))\nshapes = set()\nfor f in files:\n    shapes.add(Image.open(f).size)",
        "df = pd.read_csv('a.csv')\nX = [Image.open(p) for p in df['path']]",
        "def load(f):\n    return np.array(Image.open(f))\nX = np.stack([load(f) for f in glob.glob('*')])",
        "def load_all(d):\n    return [Image.open(f) for f in os.listdir(d)]\nX = load_all('data')",
    ],
)
def test_decoding_every_picture_is_told(source: str) -> None:
    assert "decodes everything" in read(IMAGES, source)[1].deeds


@pytest.mark.parametrize(
    "source",
    [
        "X = [Image.open(f) for f in glob.glob('data/*.png')[:9]]",
        "for f in glob.glob('*'):\n    plt.imshow(Image.open(f))",
        "def show(f):\n    plt.imshow(Image.open(f))\nfor f in glob.glob('*'):\n    show(f)",
        "X = []\nfor f in glob.glob('*'):\n    X.append(Image.open(f))\n    if len(X) == 50:\n        break",
        "df = pd.read_csv('a.csv')\nX = [Image.open(p) for p in df.sample(5)['path']]",
        "x = Image.open('a.png')",
        "def batches():\n    for f in glob.glob('*'):\n        yield Image.open(f)\ndata = batches()",
    ],
)
def test_a_look_at_some_pictures_is_not_all_of_them(source: str) -> None:
    assert "decodes everything" not in read(IMAGES, source)[1].deeds


def test_script_actions_where_written_and_where_run() -> None:
    script = f"%%writefile train.py\n{LOOP}\nfor epoch in range(3):\n    train_one(model, loader)"
    written, run = read(script, "!python train.py --fast")
    assert written.words == "writes train.py (trains, defines the training)"
    assert run.words == "trains, runs train.py"
