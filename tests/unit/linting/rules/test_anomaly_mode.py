"""Debugging modes left on: cases beside the specimens."""

from __future__ import annotations

import textwrap

from tests.linted import OneRule, each

HEAD = """
import torch, argparse
import tensorflow as tf
import lightning as L
from torch import autograd
from tensorflow import keras
"""
LOOP = "for x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n    optimizer.step()\n"


lines = OneRule("anomaly-mode", HEAD).texts


@each(
    "line",
    [
        "autograd.set_detect_anomaly(True)",
        "torch.autograd.set_detect_anomaly(mode=True)",
        "torch.autograd.set_detect_anomaly(True, check_nan=False)",
        "trainer = L.Trainer(max_epochs=3, detect_anomaly=True)",
        "model.compile('adam', 'mse', run_eagerly=True)",
        "model.run_eagerly = True",
        "tf.config.experimental_run_functions_eagerly(True)",
        "tf.debugging.enable_check_numerics(stack_height_limit=30)",
    ],
)
def test_a_mode_that_is_on_is_reported(line: str) -> None:
    assert lines(f"{line}\n{LOOP}") == [line]


@each(
    "line",
    [
        "autograd.set_detect_anomaly(False)",
        "autograd.set_detect_anomaly(args.debug)",
        "if args.debug:\n    autograd.set_detect_anomaly(True)",
        "if 'nan' in flags:\n    tf.debugging.enable_check_numerics()",
        "autograd.set_detect_anomaly(True)\ncheck_one_batch()\nautograd.set_detect_anomaly(False)",
        "with autograd.detect_anomaly():\n    criterion(model(x), y).backward()",
        "L.Trainer(detect_anomaly=False)",
        "model.compile('adam', run_eagerly=False)",
        "tf.config.run_functions_eagerly(False)",
        "def detect_anomaly(x):\n    return x > 3\ndetect_anomaly(True)",
        "autograd.set_detect_anomaly(True)  # noqa: anomaly-mode",
    ],
)
def test_one_that_is_off_or_asked_for_is_not(line: str) -> None:
    assert lines(f"{line}\n{LOOP}") == []


def test_a_switch_that_is_known_to_be_on_counts() -> None:
    assert lines(f"DEBUG = True\nif DEBUG:\n    autograd.set_detect_anomaly(True)\n{LOOP}") == [
        "autograd.set_detect_anomaly(True)"
    ]
    assert lines(f"if torch.cuda.is_available():\n    autograd.set_detect_anomaly(True)\n{LOOP}") == [
        "autograd.set_detect_anomaly(True)"
    ]
    assert (
        lines(f"""
parser = argparse.ArgumentParser()
parser.add_argument("--debug", action="store_true")
args = parser.parse_args()
autograd.set_detect_anomaly(args.debug)
{LOOP}""")
        == []
    )


def test_a_block_counts_round_training_only() -> None:
    assert lines("with autograd.detect_anomaly():\n" + textwrap.indent(LOOP, "    ")) == ["with autograd.detect_anomaly():"]
    assert lines("""
        for x, y in loader:
            with torch.autograd.set_detect_anomaly(True):
                loss = criterion(model(x), y)
                loss.backward()
            optimizer.step()
    """) == ["with torch.autograd.set_detect_anomaly(True):"]
    assert (
        lines("""
        for step, (x, y) in enumerate(loader):
            if step == 0:
                with torch.autograd.detect_anomaly():
                    criterion(model(x), y).backward()
            criterion(model(x), y).backward()
    """)
        == []
    )
    assert lines("""
        def train():
            for x, y in loader:
                criterion(model(x), y).backward()
        with torch.autograd.detect_anomaly():
            train()
    """) == ["with torch.autograd.detect_anomaly():"]
