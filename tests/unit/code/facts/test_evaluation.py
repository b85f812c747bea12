"""Which code evaluates, and whether gradients are off there."""

from __future__ import annotations

import pytest

from programs import book, script
from unchoke.code.facts.vocabulary import is_evaluating_name, role_of

EVALUATING = """
    evaluate eval_epoch validate val_one_epoch test test_model predict_photo run_inference _infer do_validation val_acc
    valid_acc evaluateModel compute_val_loss
"""


@pytest.mark.parametrize("name", EVALUATING.split())
def test_names_of_functions_that_evaluate(name: str) -> None:
    assert is_evaluating_name(name)


OTHERS = """
    train train_one_epoch val_dataloader test_loader train_test_split value_of build make_test_set train_and_validate
    contest interval
"""


@pytest.mark.parametrize("name", OTHERS.split())
def test_names_of_functions_that_do_not(name: str) -> None:
    assert not is_evaluating_name(name)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("train_loader", "train"),
        ("valDl", "eval"),
        ("test_ds", "eval"),
        ("trn", "train"),
        ("values", "unknown"),
        ("x", "unknown"),
        ("trainloader", "train"),
        ("data/holdout", "eval"),
        ("testing_set", "eval"),
        ("latest", "unknown"),
        ("contrast", "unknown"),
    ],
)
def test_names_of_variables_tell_what_they_are_for(name: str, role: str) -> None:
    assert role_of(name) == role


def off(text: str) -> tuple[bool, bool]:
    """Is the call `model(x)` in evaluation code, and are gradients off there?"""
    program = script(f"import torch\n{text}")
    call = program.calls_to("model")[-1]
    found = program.facts.in_evaluation(call)
    return found is not None, program.facts.no_grad(call)


@pytest.mark.parametrize(
    "text",
    [
        "@torch.no_grad()\ndef evaluate():\n  model(x)",
        "@torch.inference_mode()\ndef predict():\n  model(x)",
        "@torch.no_grad\ndef evaluate():\n  model(x)",
        "def evaluate():\n  with torch.no_grad():\n    for x in dl:\n      model(x)",
        "def evaluate():\n  with torch.inference_mode(), torch.autocast('cuda'):\n    model(x)",
        "def evaluate():\n  with torch.set_grad_enabled(False):\n    model(x)",
        "def evaluate():\n  model(x)\nwith torch.no_grad():\n  evaluate()",
        "def evaluate():\n  torch.set_grad_enabled(False)\n  model(x)",
        "model.eval()\nwith torch.no_grad():\n  model(x)",
        "from torch import no_grad as ng\ndef test():\n  with ng():\n    model(x)",
    ],
)
def test_evaluation_with_gradients_off(text: str) -> None:
    assert off(text) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        "def evaluate():\n  model.eval()\n  for x in dl:\n    model(x)",
        "model.eval()\nfor x in dl:\n  model(x)",
        "def evaluate():\n  model(x)\nwith torch.no_grad():\n  evaluate()\nevaluate()",
        "def f():\n  model.eval()\n  y = model(x)",
        "with torch.set_grad_enabled(True):\n  model.eval()\n  model(x)",
        "torch.set_grad_enabled(False)\ntorch.set_grad_enabled(True)\nmodel.eval()\nmodel(x)",
    ],
)
def test_evaluation_with_gradients_on(text: str) -> None:
    assert off(text) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "for x in dl:\n  loss = model(x)\n  loss.backward()",
        "model.eval()\nmodel.train()\nmodel(x)",
        "model.eval()\nfor x in dl:\n  model(x).backward()",
        "model.eval()\ndef train():\n  model(x)",
        "if a:\n  model.eval()\nmodel(x)",
    ],
)
def test_no_evaluation(text: str) -> None:
    assert not off(text)[0]


def test_evaluation_lasts_over_cells_until_training() -> None:
    program = book("model.eval()", "one = model(x)", "model.train()\ntwo = model(x)")
    assert [program.facts.in_evaluation(call) is not None for call in program.calls_to("model")] == [True, False]


def test_lightning_evaluates_without_gradients() -> None:
    program = script("class Lit(LightningModule):\n  def validation_step(self, b, i):\n    model(b)")
    found = program.facts.in_evaluation(program.calls_to("model")[0])
    assert found is not None
    assert (found.kind, found.no_grad) == ("lightning", True)
