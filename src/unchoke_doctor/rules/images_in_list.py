"""Are all images of a large set held in memory: decoded before training, or kept batch by batch in an evaluation?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import DRAWS, constants, is_decode, known_size, sample_functions
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import origins, returned, value
from unchoke_doctor.code.training import handful, torch_passes
from unchoke_doctor.rules import Case, Hit

_LARGE_BYTES, _IMAGE_BYTES, _FEW = 4e9, 500_000, 500
"""Bytes that a usual machine does not hold; bytes of one image that matter where their number is not known; few images."""
_GRAY = re.compile(r"2GRAY|GRAYSCALE|convert\('L'\)|imread\([^,]+, 0\)|as_gr[ae]y=True|color_mode='grayscale'")
_COPIES = ("cpu", "detach", "numpy", "clone", "data", "tolist")
_MASKS = re.compile(r"mask|label|annot|target|size|shape|^y(?:_|$)", re.IGNORECASE)
# Calls that make an image of an image; everything else (features, sums, shapes) is small.
_IMAGES = re.compile(
    r"(?:array|asarray|astype|resize|convert|cvtColor|img_to_array|expand_dims|preprocess_input|transpose|reshape|flatten|copy|crop|"
    r"normalize|to_tensor|ToTensor\(\)|transform|fromarray|rotate|flip|blur|float|squeeze|preprocess\w*|augment\w*|thumbnail|"
    r"equalize\w*|clahe|Compose\(\)|from_numpy|numpy|cast)$",
    re.IGNORECASE,
)


def check(case: Case) -> Iterator[Hit]:
    program, seen = case.program, set[ast.AST]()
    kept: list[tuple[ast.AST, ast.expr, ast.AST | None, str]] = [
        (node, node.elt, node, "") for node in program.order if isinstance(node, ast.ListComp)
    ]
    kept += [
        (call, call.args[0], program.loop(call), program.text(call.func.value))
        for call in program.calls_to("append")
        if isinstance(call.func, ast.Attribute) and call.args
    ]
    for node, item, loop, name in sorted(kept, key=lambda one: program.order[one[0]]):
        if loop is None or loop in seen or not program.is_own(node) or program.function(node) in sample_functions(program):
            continue
        facts: dict[str, object] = {}
        drawn = any(program.last(call) in DRAWS for call in program.calls_in(loop))
        if drawn or handful(program, loop) or any(map(_MASKS.search, (name, getattr(item, "id", "")))):
            continue
        if not _holds_image(program, item, facts):
            continue
        seen.add(loop)
        if case.outputs.images is None or case.outputs.images >= _FEW:
            yield _hit(case, node, name, facts)
    yield from _kept_batches(case)
    for call in program.own_calls("append", "vstack", "concatenate", "concat", "row_stack"):
        statement, loop = program.statement(call), program.loop(call)  # `images = np.append(images, [image])`
        targets = {program.text(target) for target in getattr(statement, "targets", ())}
        held = {program.text(part) for arg in call.args[:1] for part in getattr(arg, "elts", [arg])}
        if not isinstance(loop, ast.For) or not targets & held or not program.name(call).startswith(("numpy.", "tensorflow.")):
            continue
        if not handful(program, loop) and any(is_decode(program, one) for part in loop.body for one in program.reached(part)):
            said = f"`{program.text(call)}` copies all images collected so far for each new one"
            fix = "append to a list and call `np.stack` once after the loop, or fill an array that was made before"
            yield case.hit([call], said, fix)


def _kept_batches(case: Case) -> Iterator[Hit]:
    """`images.append(x.cpu())` in a loop that runs a network on `x`: the inputs of a whole set, though the outputs are wanted."""
    program, kept = case.program, dict[ast.AST, ast.Call]()
    for one in torch_passes(program):
        loop, given = program.loop(one), one.args[0] if one.args else None
        if not isinstance(loop, ast.For) or not isinstance(given, ast.Name) or handful(program, loop) or not program.is_own(one):
            continue
        batch = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
        shown = any(program.last(call) in DRAWS for call in program.calls_in(loop))
        if shown or not any(isinstance(end, ast.Name) and end.id in batch for end in origins(program, given)):
            continue
        for call in program.calls_in(*loop.body):
            item = call.args[0] if program.last(call) == "append" and call.args else None
            while isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _COPIES:
                item = item.func.value
            if isinstance(item, ast.Name) and item.id == given.id and program.parents.get(program.parents[call]) is loop:
                kept.setdefault(loop, call)
    for call in kept.values():
        said = f"`{program.text(call)}` keeps all input images of the loop in memory, copied back from the device"
        fix = "keep predictions and labels alone; the images that are shown later can be read again by their index"
        error = case.outputs.memory
        yield Hit(call, said, fix, "choke" if error else "risk", "outputs" if error else "code")


def _hit(case: Case, node: ast.AST, name: str, facts: dict[str, object]) -> Hit:
    """A choke where the outputs show memory errors, or images × size is more than a usual machine holds.

    A risk where their number is not known and each takes half a megabyte.
    """
    count, size, error = case.outputs.images, facts.get("size") or known_size(constants(case.program)), case.outputs.memory
    each = 8 if facts.get("divided") else 4 if facts.get("float") else 1
    image_bytes = size[0] * size[1] * (1 if facts.get("gray") else 3) * each if isinstance(size, tuple) else 0
    total = (count or 0) * image_bytes
    said = f"{f'`{name}`' if name else 'this list'} holds every decoded image in memory"
    if total:
        said += f": about {total / 1e9:.1f} GB for {count:,} images, twice that while a list becomes an array"
    said += f"; the saved outputs show `{error}`" if error else ""
    fix = (
        "keep the paths and decode in a Dataset with workers (Keras: `image_dataset_from_directory`), or decode once into "
        "`np.lib.format.open_memmap` as uint8"
    )
    choke = total >= _LARGE_BYTES or bool(error and not error.startswith("CUDA"))
    heavy = not image_bytes or image_bytes >= _IMAGE_BYTES
    shown = {"images": count, "image_px": size, "bytes": total or None, "memory_error": error or None}
    evidence = {key: item for key, item in shown.items() if item is not None}
    kind, basis = "choke" if choke else "risk" if count is None and heavy else "note", "outputs" if count or choke else "code"
    return Hit(node, said, fix, kind, basis, evidence)  # type: ignore[arg-type]


def _holds_image(program: Program, expr: ast.AST, facts: dict[str, object], deepest: int = 8) -> bool:
    """Is this a decoded image, through names, functions and calls that make images of images? Notes size and type in `facts`."""
    parts: list[ast.expr] = []
    match expr if deepest else None:
        case ast.Name() as name:
            bindings = [binding for binding in program.bound(name) if binding.how in ("value", "item")]
            parts = [binding.value for binding in bindings if binding.value is not None]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case ast.BinOp(left=left, op=op):
            facts["divided"] = facts.get("divided") or isinstance(op, ast.Div)
            parts = [left]
        case ast.Subscript(value=inner):
            parts = [inner]
        case ast.Call() as call:
            for part in (*call.args, *(word.value for word in call.keywords)):
                size = value(program, part)
                if isinstance(size, tuple) and len(size) in (2, 3) and all(isinstance(one, int) and one >= 8 for one in size[:2]):
                    facts["size"] = size[:2]
            is_float = "float" in program.text(call) or program.last(call) in ("img_to_array", "to_tensor")
            facts["float"] = facts.get("float") or is_float
            facts["gray"] = facts.get("gray") or bool(_GRAY.search(program.text(call, 500)))
            if is_decode(program, call):
                return True
            target = program.target(call)
            makers = [program.name(end) for end in origins(program, call.func) if isinstance(end, ast.Call)]
            if target is not None and not isinstance(target, ast.ClassDef):
                parts = returned(program, target)
            elif any(_IMAGES.search(name) for name in (program.name(call), *makers)):
                parts = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
    return any(_holds_image(program, part, facts, deepest - 1) for part in parts)
