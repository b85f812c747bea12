"""Names, values, calls and places as the rules ask for them."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.program import Program
from unchoke.code.source import parse_source


def script(text: str) -> Program:
    return Program(parse_source("a.py", text.encode()))


def book(*cells: str) -> Program:
    found = [{"cell_type": "code", "source": cell} for cell in cells]
    return Program(parse_source("a.ipynb", json.dumps({"cells": found}).encode()))


def last_call(program: Program) -> ast.Call:
    """The outermost call of the last statement."""
    statement = list(program.nodes(ast.Expr, ast.Assign))[-1]
    return next(iter(program.within(statement, ast.Call)))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import tensorflow.keras.layers as L\nL.Dense(1)", "tf.keras.layers.Dense"),
        ("from keras.layers import Dense\nDense(1)", "tf.keras.layers.Dense"),
        ("from torch.utils import data as D\nD.DataLoader(x)", "torch.utils.data.DataLoader"),
        ("import os.path as osp\nosp.exists(p)", "os.path.exists"),
        ("from PIL import Image as I\nI.open(p)", "PIL.Image.open"),
        ("import torch as th, torch.nn as nn\nth.no_grad()", "torch.no_grad"),
        ("from torch import *\nload(p)", "torch.load"),
        ("from fastai.vision.all import *\nnp.load(p)", "numpy.load"),
        ("from tensorflow.keras import *\nlayers.Dense(3)", "tf.keras.layers.Dense"),
        ("import cv2\nread = cv2.imread\nread(p)", "cv2.imread"),
        ("from tensorflow import keras\nlayers = keras.layers\nlayers.Dense(3)", "tf.keras.layers.Dense"),
        ("import pytorch_lightning as pl\npl.Trainer()", "lightning.Trainer"),
        ("from lightning.pytorch import Trainer\nTrainer()", "lightning.Trainer"),
        ("import torch.multiprocessing as mp\nmp.set_start_method('spawn')", "multiprocessing.set_start_method"),
        ("loss.item()", "?.item"),
        ("f(x).item()", "?.item"),
        ("evaluate(model)", "evaluate"),
        ("(lambda: 1)()", ""),
        ("from builtins import range\nrange(3)", "range"),
    ],
)
def test_a_name_has_one_spelling(text: str, name: str) -> None:
    program = script(text)
    assert program.name(last_call(program)) == name


def test_variable_hides_an_import_once_assigned() -> None:
    program = script("from keras.preprocessing import image\na = image.load_img(p)\nimage = 3\nimage.load_img(p)")
    names = [program.name(call) for call in program.nodes(ast.Call)]
    assert names == ["tf.keras.preprocessing.image.load_img", "?.load_img"]


def test_a_parameter_hides_an_import() -> None:
    program = script("import torchvision.transforms as tf\ndef f(tf):\n    return tf.Resize(3)\ntf.Resize(4)")
    assert [program.name(call) for call in program.nodes(ast.Call)] == ["?.Resize", "torchvision.transforms.Resize"]


def test_an_import_in_a_later_cell_counts_in_an_earlier_one() -> None:
    program = book("np.load(p)", "import numpy as np")
    assert program.name(last_call(program)) == "numpy.load"


VALUES = """
import argparse
BATCH, SIZE = 32, 224
EPOCHS: int = 5 * 6
CONFIG = {"bs": 16, "lr": 1e-3}
settings = dict(bs=17)
class CFG:
    bs = 48
    size = SIZE
class Data:
    def __init__(self, root, batch_size=8):
        self.batch_size = batch_size
        self.wide = 2 * batch_size
    def loader(self):
        return use(self.batch_size, self.wide)
parser = argparse.ArgumentParser()
parser.add_argument("--num-epochs", "-n", type=int, default=40)
parser.add_argument("--fast", action="store_true")
args = parser.parse_args()
def train(epochs=3, lr=1):
    return epochs
train(epochs=9)
"""


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("BATCH", 32),
        ("2 * BATCH + 1", 65),
        ("SIZE // 2", 112),
        ("EPOCHS", 30),
        ("CONFIG['bs']", 16),
        ("CONFIG.get('workers', 4)", 4),
        ("CONFIG.get('bs', 4)", 16),
        ("settings['bs']", 17),
        ("CFG.bs", 48),
        ("CFG().size", 224),
        ("args.num_epochs", 40),
        ("args.fast", False),
        ("int(SIZE * 1.5)", 336),
        ("(SIZE, SIZE)", (224, 224)),
        ("min(BATCH, 8)", 8),
        ("-BATCH", -32),
        ("8 if cuda else 8", 8),
    ],
)
def test_a_constant_is_found_through_names_and_arithmetic(expression: str, value: Any) -> None:
    program = script(f"{VALUES}\nfound = {expression}")
    assert program.value(program.assigned("found")[0]) == value


@pytest.mark.parametrize(
    "expression", ["unknown", "len(x)", "8 if cuda else 0", "os.cpu_count()", "x.y.z", "10 ** 10 ** 10", "1 / 0", "f()"]
)
def test_what_only_running_would_tell_is_unknown(expression: str) -> None:
    program = script(f"found = {expression}")
    assert program.value(program.assigned("found")[0]) is UNKNOWN


def test_parameter_has_callers_value_or_default() -> None:
    program = script(VALUES)
    given = [node.value for node in program.nodes(ast.Return) if isinstance(node.value, ast.Name)]
    assert [program.value(node) for node in given] == [9]
    sizes = next(call for call in program.calls_to("use")).args
    assert [program.value(node) for node in sizes] == [8, 16]


def test_parameter_given_differently_is_unknown() -> None:
    program = script("def f(bs):\n    return bs\nf(3)\nf(4)")
    assert program.value(next(program.nodes(ast.Return)).value) is UNKNOWN


def test_a_variable_that_goes_round_in_a_circle_is_unknown() -> None:
    program = script("a = b\nb = a\nfound = a")
    assert program.value(program.assigned("found")[0]) is UNKNOWN


CALLS = """
class Base:
    def read(self, p):
        return decode(p)
class Data(Base):
    def __getitem__(self, i):
        return self.read(i)
def decode(p):
    return helper(p)
def helper(p):
    return p
data = Data()
data.read(3)
"""


def test_calls_follow_methods_bases_and_objects() -> None:
    program = script(CALLS)
    item = program.methods(program.classes["Data"])["__getitem__"]
    assert [function.name for function in program.called_functions(item)] == ["read"]
    assert {function.name for function in program.reach(item)} == {"read", "decode", "helper"}
    assert program.function_of(program.calls_to("read")[-1]) is program.methods(program.classes["Data"])["read"]
    assert [program.line(call) for call in program.callers(program.functions["decode"])] == [4]


@pytest.mark.parametrize(
    "made",
    [
        "Net()",
        "Net().to(device)",
        "torch.compile(Net())",
        "nn.DataParallel(Net()).cuda()",
        "build()",
        "Net() if big else Net()",
        "Net.load('x')",
    ],
)
def test_an_object_knows_its_class_through_wrappers(made: str) -> None:
    program = script(f"class Net: pass\ndef build():\n    n = Net()\n    return n\nmodel = {made}\nmodel(x)")
    assert program.assigned_class(program.calls_to("model")[0].func) is program.classes["Net"]


def test_the_parts_of_a_returned_tuple_are_told_apart() -> None:
    program = script("class A: pass\nclass B: pass\ndef f():\n    return A(), B()\na, b = f()\nuse(a, b)")
    first, second = program.calls_to("use")[0].args
    assert program.assigned_class(first) is program.classes["A"]
    assert program.assigned_class(second) is program.classes["B"]


def test_an_object_is_known_by_what_made_it() -> None:
    program = script("import multiprocessing as mp\nwith mp.Pool(8) as pool:\n    pool.map(f, x)")
    assert program.made_by(program.receiver(program.calls_to("map")[0])) == "multiprocessing.Pool"


def test_places_count_characters_and_cells() -> None:
    program = book("x = 1", "%time  é = f('ü'); g(1)\n!ls")
    place = program.place(program.calls_to("g")[0])
    assert (place.cell, place.line, place.column, place.end_column) == (2, 1, 19, 23)


def test_loops_around_omit_heads_else_and_outer_functions() -> None:
    program = script("for a in x():\n    def f():\n        for b in y():\n            z()\n    w()\nelse:\n    v()")
    around = {program.method(call): len(program.loops_around(call)) for call in program.nodes(ast.Call)}
    assert around == {"x": 0, "y": 0, "z": 1, "w": 1, "v": 0}


def test_comments_and_prose_are_found_and_strings_are_not() -> None:
    program = script('"""A page."""\nx = "# not one"  # one\ny = """\n# nor this\n"""\n# two')
    assert [text for _, text in program.prose] == ["one", "two", "A page."]


def test_within_gives_what_is_below_a_node_in_order() -> None:
    program = script("f(g(1), h(2))\nk(3)")
    outer = program.calls_to("f")[0]
    assert [program.method(call) for call in program.within(outer, ast.Call)] == ["f", "g", "h"]


def test_mutually_returning_functions_are_read_once() -> None:
    """By way of every order of them it would be days."""
    calls = "\n    ".join(f"if a: return f{n}(a)" for n in range(12))
    program = script("".join(f"def f{n}(a):\n    {calls}\n" for n in range(12)) + "use(f0(1))")
    assert program.assigned_class(program.calls_to("use")[0].args[0]) is None
