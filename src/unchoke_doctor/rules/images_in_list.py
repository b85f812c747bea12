"""Are all images of a large set decoded into memory before training?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import in_display, is_decode, known_size, constants, sample_functions
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import origins, returned, value
from unchoke_doctor.code.training import handful
from unchoke_doctor.rules import Case, Hit

_LARGE_BYTES = 4e9
_FEW = 500
_MASKS = re.compile(r"mask|label|annot|target|size|shape|^y(?:_|$)", re.IGNORECASE)
# Calls that make an image of an image; everything else (features, sums, shapes) is small.
_IMAGES = re.compile(
    r"(?:array|asarray|astype|resize|convert|cvtColor|img_to_array|expand_dims|preprocess_input|transpose|reshape|flatten|copy|crop|"
    r"normalize|to_tensor|ToTensor\(\)|transform|fromarray|rotate|flip|blur|float|squeeze|preprocess\w*|augment\w*|thumbnail|equalize\w*|clahe|Compose\(\)|from_numpy|numpy|cast)$",
    re.IGNORECASE,
)


def check(case: Case) -> Iterator[Hit]:
    program, seen = case.program, set[ast.AST]()
    for node in (*program.calls_to("append"), *(node for node in program.order if isinstance(node, ast.ListComp))):
        kept, loop = (node.elt, node) if isinstance(node, ast.ListComp) else (node.args[0] if node.args else None, program.loop(node))
        if kept is None or loop is None or loop in seen or not program.is_own(node) or program.function(node) in sample_functions(program):
            continue
        name = program.text(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        facts: dict[str, object] = {}
        if _MASKS.search(name) or not _holds_image(program, kept, facts) or handful(program, loop) or in_display(program, node):
            continue
        seen.add(loop)
        if (hit := _hit(case, node, name, facts)) is not None:
            yield hit


def _hit(case: Case, node: ast.AST, name: str, facts: dict[str, object]) -> Hit | None:
    """A choke where the outputs show memory errors, or images × size is more than a usual machine holds."""
    count, size = case.images, facts.get("size") or known_size(constants(case.program))
    if count is not None and count < _FEW:
        return None
    each = 8 if facts.get("divided") else 4 if facts.get("float") else 1
    total = count * size[0] * size[1] * 3 * each if count is not None and isinstance(size, tuple) else None
    shown: dict[str, object] = {"images": count, "image_px": list(size) if isinstance(size, tuple) else None, "bytes": total, "memory_error": case.outputs.memory or None}
    large = total is not None and total >= _LARGE_BYTES
    said = f"{f'`{name}`' if name else 'this list'} holds every decoded image in memory"
    if total is not None:
        said += f": about {total / 1e9:.1f} GB for {count:,} images, twice that while a list becomes an array"
    if case.outputs.memory:
        said += f"; the saved outputs show `{case.outputs.memory}`"
    fix = "keep the paths and decode in a Dataset with workers (Keras: `image_dataset_from_directory`), or decode once into `np.lib.format.open_memmap` as uint8"
    choke = large or (bool(case.outputs.memory) and not case.outputs.memory.startswith("CUDA"))
    evidence = {key: item for key, item in shown.items() if item is not None}
    return Hit(node, said, fix, "choke" if choke else "note", "outputs" if count is not None or choke else "code", evidence)


def _holds_image(program: Program, expr: ast.AST, facts: dict[str, object], deepest: int = 8) -> bool:
    """Is this a decoded image, through names, functions of the program and calls that make images of images? Notes size and type."""
    if not deepest:
        return False
    match expr:
        case ast.Name():
            found = [binding.value for binding in program.bound(expr) if binding.how in ("value", "item") and binding.value is not None]
            return any(_holds_image(program, one, facts, deepest - 1) for one in found)
        case ast.Tuple() | ast.List():
            return any(_holds_image(program, part, facts, deepest - 1) for part in expr.elts)
        case ast.BinOp():
            facts["divided"] = facts.get("divided") or isinstance(expr.op, ast.Div)
            return _holds_image(program, expr.left, facts, deepest - 1)
        case ast.Subscript():
            return _holds_image(program, expr.value, facts, deepest - 1)
        case ast.Call():
            return _call_holds(program, expr, facts, deepest)
    return False


def _call_holds(program: Program, call: ast.Call, facts: dict[str, object], deepest: int) -> bool:
    for part in (*call.args, *(word.value for word in call.keywords)):
        size = value(program, part)
        if isinstance(size, tuple) and len(size) in (2, 3) and all(isinstance(one, int) and one >= 8 for one in size[:2]):
            facts["size"] = size[:2]
    last = program.name(call).rpartition(".")[2]
    facts["float"] = facts.get("float") or "float" in program.text(call) or last in ("img_to_array", "to_tensor")
    if is_decode(program, call):
        return True
    target = program.target(call)
    if target is not None and not isinstance(target, ast.ClassDef):
        return any(_holds_image(program, one, facts, deepest - 1) for one in returned(program, target))
    if not _IMAGES.search(program.name(call)) and not any(_IMAGES.search(program.name(end)) for end in origins(program, call.func) if isinstance(end, ast.Call)):
        return False
    parts = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
    return any(_holds_image(program, part, facts, deepest - 1) for part in parts)
