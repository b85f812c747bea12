"""CUDA taken for granted.

`.cuda()`, `.to("cuda")`, `torch.device("cuda")`, `accelerator="gpu"` or `tf.device("/GPU:0")` in a file that never looks
whether there is such a device. It runs where it was written and stops with an error, often after minutes of loading, on a
laptop, a Mac, a machine whose card is taken, or a session that was given no GPU. The code cannot be tried anywhere else either,
so mistakes are found on the expensive machine.

**Write instead.** Decide once, and hand the decision on:

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    x = x.to(device, non_blocking=True)

Lightning: `accelerator="auto"`. TensorFlow uses the GPU by itself: leave `tf.device` out, or write `"/GPU:0" if
tf.config.list_physical_devices("GPU") else "/CPU:0"`.

**When this is fine.** In a benchmark or a job that is only ever started on one kind of machine and must stop where there is no
such device; `assert torch.cuda.is_available()` at the top says so, at once, and silences this rule. One look anywhere in the file
is enough, and so is a test that is skipped where there is no card. An option whose default is "cuda" is a choice left to the
user and is not reported. It is a risk in a notebook that trains, which is taken along to other machines, and for `.cuda()` on
what a function of a library was given. Scripts are meant for one kind of machine, as far as can be seen: a nit, as it is where
CUDA is the subject (by the modules, the folder, or a word about cards in the text) and where the notebooks beside it take it
for granted too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath

from unchoke.code.facts.devices import CUDA, asks_for_cuda, looks_for_cuda
from unchoke.code.facts.stakes import looks_beside
from unchoke.code.facts.vocabulary import words
from unchoke.code.program import Program
from unchoke.linting.library import is_library
from unchoke.linting.questions import MEASURES
from unchoke.linting.rule import Hit, Rule, shortened

RULE = Rule(
    group="device",
    stage="device",
    title="CUDA taken for granted",
    kind="risk",
    holds_alone=True,
    gain="runs on machines without CUDA instead of stopping with an error",
    command="unchoke doctor",
    devices=("cpu", "mps"),
)
_SUBJECT = re.compile(
    r"(?:apex|ffcv|cutlass\w*|torch2trt|sinabs\.exodus|numba\.cuda|tensorrt|torch_tensorrt|triton|cupy|pycuda|pynvml|deepspeed|"
    r"bitsandbytes|flash_attn|nvidia|pytorch_quantization|faiss)\b|torch\.(?:distributed|utils\.benchmark|cuda\.)"
)
_CARD_WORDS = frozenset({"cuda", "gpu", "gpus", "multigpu", "triton", "kernel", "kernels", "cutlass", "cudnn", "tensorrt"})
_CARD = re.compile(r"\bGPUs?\b|\bCUDA\b", re.IGNORECASE)
_TORCH = 'decide once, `device = torch.device("cuda" if torch.cuda.is_available() else "cpu")`, and write `.to(device)`'
_LIGHTNING = 'write `accelerator="auto"`: Lightning then takes the best device there is'
_COUNTED = 'write `accelerator="auto", devices=1`: Lightning then takes the best device there is; a CPU takes no list of cards'
_TF = 'leave `tf.device` out, TensorFlow takes a GPU by itself; or ask `tf.config.list_physical_devices("GPU")` first'


def check(program: Program) -> Iterator[Hit]:
    places = asks_for_cuda(program)
    if not places or looks_for_cuda(program):
        return
    first, parent = places[0], program.parent(places[0])
    lines = sorted({(program.place(node).cell or 0, program.line(node)) for node in places})
    more = f", here and in {len(lines) - 1} more line{'s' if len(lines) > 2 else ''}" if len(lines) > 1 else ""
    if isinstance(parent, ast.keyword) and parent.arg in ("accelerator", "gpus"):
        trainer = program.parent(parent)
        counted = parent.arg == "gpus" or (isinstance(trainer, ast.Call) and program.keyword(trainer, "devices") is not None)
        fix = _COUNTED if counted else _LIGHTNING
    else:
        fix = (_TF if program.name(parent).startswith("tf.") else _TORCH) + (" at all of them" if more else "")
    device = "a graphics card" if program.value(first) == "gpu" else "CUDA"
    yield Hit(
        first,
        f"`{_shown(program, first)}` takes {device} for granted: nothing in this file looks whether there is any{more}",
        evidence={"places": len(places), "lines": [line for _, line in lines]},
        fix=fix,
        kind=None if _should_run_elsewhere(program, places) else "nit",
    )


def _should_run_elsewhere(program: Program, places: list[ast.AST]) -> bool:
    """A notebook that trains, or a library's function on what it is given, where nothing says that cards are the subject."""
    path = PurePath(program.source.path).with_suffix("")
    told = any((_CARD_WORDS | MEASURES) & set(words(part)) for part in path.parts[-3:])
    if told or any(_CARD.search(text) for _, text in program.prose):
        return False
    if any(_SUBJECT.match(name) for name in (*program.modules, *program.calls_by_name)):
        return False
    if is_library(program.source):
        return any(_moves_what_it_is_given(program, node) for node in places)
    trains = bool(program.facts.fits or program.facts.training_loops)
    return program.is_notebook and trains and looks_beside(program) is not False


def _moves_what_it_is_given(program: Program, node: ast.AST) -> bool:
    """`def loss(x, y): return x - y.cuda()`: wherever its caller has put it. Of `y.cuda(device)` the caller knows."""
    moved = program.receiver(node) if isinstance(node, ast.Call) and program.method(node) == CUDA and not node.args else None
    return moved is not None and any(bound.how == "handed" for bound in program.reaching(moved))


def _shown(program: Program, node: ast.AST) -> str:
    """The call or assignment that names the device, short."""
    parent = program.parent(node)
    if isinstance(parent, ast.keyword):
        return program.text(parent)
    named = not isinstance(node, ast.Call) and isinstance(parent, ast.Call | ast.Assign | ast.AnnAssign)
    return shortened(program, parent if named and parent is not None else node)
