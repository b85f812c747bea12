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

**When this is fine.** A script is a risk where a file beside it looks for CUDA, a notebook unless all those beside it that
speak of CUDA take it for granted too: others are meant for one kind of machine, as far as can be seen, and it is a nit. In a
benchmark or a job that is only ever started on one kind of machine and must stop where there is no such device; `assert
torch.cuda.is_available()` at the top says so, at once, and silences this rule. One look anywhere in the file is enough, and so
is a test that is skipped where there is no card. An option whose default is "cuda" is a choice left to the user and is not
reported, and neither is a parameter's default more than a nit. Where CUDA is the subject (NCCL, Apex, TensorRT,
`torch.cuda.Event`, `gpu=True`, an option for it, a kernel), where the file says in words that it is for a GPU or compares
devices, in a table of settings that another file reads, and in the few lines below the main guard that try a network on random
numbers it is a nit, and in a library everything but `.cuda()` on what a function was given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath

from unchoke.code.facts.devices import CPU, CUDA, asks_for_cuda, looks_for_cuda
from unchoke.code.facts.stakes import looks_beside
from unchoke.code.facts.vocabulary import words
from unchoke.code.nodes import is_main_test
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
    devices=("cuda",),
)
_SUBJECT = re.compile(
    r"(?:apex|ffcv|cutlass\w*|torch2trt|sinabs\.exodus|numba\.cuda|tensorrt|torch_tensorrt|triton|cupy|pycuda|pynvml|deepspeed|bitsandbytes|flash_attn|nvidia|pytorch_quantization)\b"
    r"|torch\.(?:distributed|utils\.benchmark)|faiss\..*gpu|torch\.cuda\.(?:Event|Stream|CUDAGraph|synchronize|\w*memory\w*)|(?:use_)?gpu=True$|nccl$|--gpu"
    r"|.*DistributedDataParallel$"
)
_CARD_WORDS = frozenset({"cuda", "gpu", "gpus", "multigpu", "triton", "kernel", "kernels", "cutlass", "cudnn"})
_CARD = re.compile(r"\bGPUs?\b|\bCUDA\b(?!\()", re.IGNORECASE)
_MAYBE = re.compile(  # or what a line does: `# move to the GPU`
    r"\bif\b|availab|\bCPU\b|\bcan\b|\bcould\b|\boption|\bor\b|[.`]cuda\b|^\W*cuda\W|\bto (?:the )?(?:GPU|CUDA)\b|"
    r"\b(?:mov|put|send|cop|load)(?:e|ing|y)?\b",
    re.IGNORECASE,
)
_RANDOM = re.compile(r"(?:torch|numpy\.random|tf\.random)\.(?:rand|randn|randint|ones|zeros|normal|uniform)$")
_TORCH = 'decide once, `device = torch.device("cuda" if torch.cuda.is_available() else "cpu")`, and write `.to(device)`'
_LIGHTNING = 'write `accelerator="auto"`: Lightning then takes the best device there is'
_LISTED = "let Lightning choose where there is no such card, and say how many devices rather than which: a CPU takes no list"
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
        devices = program.keyword(trainer, "devices") if isinstance(trainer, ast.Call) else None
        listed = devices is not None and isinstance(program.latest(devices.value) or devices.value, ast.List | ast.Tuple)
        fix = _LISTED if listed else _LIGHTNING
    else:
        fix = (_TF if program.name(parent).startswith("tf.") else _TORCH) + (" at all of them" if more else "")
    yield Hit(
        first,
        f"`{_shown(program, first)}` takes CUDA for granted: nothing in this file looks whether there is any{more}",
        evidence={"places": len(places), "lines": [line for _, line in lines]},
        fix=fix,
        kind="nit" if _is_meant(program, places) else None,
    )


def _is_meant(program: Program, places: list[ast.AST]) -> bool:
    """Is CUDA the subject, are these settings for others, or is a network only timed, or tried on random numbers?"""
    path = PurePath(program.source.path).with_suffix("")
    told = any(_CARD_WORDS & set(words(part)) for part in path.parts[-3:]) or "tensorrt" in path.name.lower()
    compared = any(isinstance(program.parent(node), ast.Compare) for node in program.nodes(ast.Constant) if node.value == CUDA)
    told = told or bool(MEASURES & set(words(path.name)))
    if told or compared or any(_SUBJECT.match(name) for name in (*program.modules, *_said(program))) or _is_told(program):
        return True
    if is_library(program.source):
        if not any(_moves_what_it_is_given(program, node) for node in places):
            return True
    elif not looks_beside(program) and (looks_beside(program) is False or not program.is_notebook):
        return True  # nobody shows that it should run elsewhere: a notebook is taken along
    if all(program.name(node).startswith("torch.cuda.") or _is_offered(program, node) for node in places):
        return True
    tries: list[ast.AST] = [node for node in program.nodes(ast.FunctionDef) if MEASURES & set(words(node.name))]
    mains = [node for node in program.nodes(ast.If) if is_main_test(node.test)]
    tries += mains if any(_RANDOM.match(program.name(call)) for call in program.calls_in(mains)) else []
    if all(any(program.index.holds(block, node) for block in tries) for node in places):
        return True
    given = {name for node in places for name in program.targets(node)}
    read = any(isinstance(use.ctx, ast.Load) for name in given for use in program.names(name))
    others = [item for name in given for item in program.assigned(name) if program.value(item) == CPU]
    if others or any(given & set(node.names) for node in program.nodes(ast.Global)):
        return True  # another branch or a function of the file chooses another
    return not program.is_notebook and bool(given) and not read and all(isinstance(node, ast.Constant) for node in places)


def _is_told(program: Program) -> bool:
    """Does a comment, a docstring or the text of a notebook say that this is for a card, and not that there may be one?"""
    lines = (line for _, text in program.prose for line in text.splitlines())
    return any(_CARD.search(line) and not _MAYBE.search(line) for line in lines)


def _moves_what_it_is_given(program: Program, node: ast.AST) -> bool:
    """`def loss(x, y): return x - y.cuda()`: wherever its caller has put it."""
    moved = program.receiver(node) if isinstance(node, ast.Call) and program.method(node) == CUDA else None
    return moved is not None and any(bound.how == "handed" for bound in program.reaching(moved))


def _is_offered(program: Program, node: ast.AST) -> bool:
    """A default of a parameter or field, `.cuda(number)`, `map_location=`, a function that says so: others choose."""
    function, parent = program.enclosing_function(node), program.parent(node)
    field = isinstance(parent, ast.AnnAssign) and isinstance(program.parent(parent), ast.ClassDef)
    numbered = isinstance(node, ast.Call) and program.method(node) == CUDA and bool(node.args)
    mapped = any(isinstance(above, ast.keyword) and above.arg == "map_location" for above in program.ancestors(node))
    named = function is not None and CUDA in function.name.lower()
    return isinstance(parent, ast.arguments) or field or numbered or mapped or named


def _said(program: Program) -> Iterator[str]:
    """The names of calls, words handed over, and options that are switched on."""
    yield from (program.name(call) for call in program.nodes(ast.Call))
    yield from (node.value for node in program.nodes(ast.Constant) if isinstance(node.value, str) and len(node.value) < 9)
    on = (word for word in program.nodes(ast.keyword) if isinstance(word.value, ast.Constant) and word.value.value is True)
    yield from (f"{word.arg}=True" for word in on)


def _shown(program: Program, node: ast.AST) -> str:
    """The call or assignment that names the device, short."""
    parent = program.parent(node)
    if isinstance(parent, ast.keyword):
        return program.text(parent)
    named = not isinstance(node, ast.Call) and isinstance(parent, ast.Call | ast.Assign | ast.AnnAssign)
    return shortened(program, parent if named and parent is not None else node)
