"""Are photographs of thousands of pixels decoded at full size, in every epoch, for a network that sees a few hundred?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import FOLDER_DATASETS, compositions, constants, is_decode, known_size, listed_transforms, sample_functions, size_of, transform_steps
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import given, origins, value
from unchoke_doctor.rules import Case, Hit, one_hit

_LARGE_PX = 1000
_TIMES = 4
"""Pixels decoded per pixel used from which a smaller copy pays."""
_PRINTED = (re.compile(r"size=(\d{3,5})x(\d{3,5})"), re.compile(r"(?<![\d, ])\((\d{3,5}), (\d{3,5}), [134]\)"), re.compile(r"Size\(\[[134], (\d{3,5}), (\d{3,5})\]\)"))
_SHRUNK = re.compile(r"resiz|small|thumb|(?<!\d)(\d{2,3})x\1(?!\d)|[-_/](?:128|224|256|300|320|384|512|600)(?:px)?(?:[-_/]|$)", re.IGNORECASE)
_READERS = {"flow_from_directory": ("target_size", 1), "flow_from_dataframe": ("target_size", 5), "image_dataset_from_directory": ("image_size", 7)}
_CACHED = re.compile(r"\.cache\(|cache_images|cache_dir=|CacheDataset|PersistentDataset")


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    sites, edges = _sites(program)
    own = [site for site in sites if program.is_own(site)]
    if not own or not edges:
        return
    edge = max(edges)
    found = _seen_size(case)
    if found is None:
        if edge <= 512:
            said = f"`{program.text(own[0])}` decodes every image at full size for an input of {edge} px, in every epoch"
            yield one_hit(own, message=said, fix="if the files are more than twice as large as that, resize them once and train on the copies", kind="note", evidence={"input_px": edge})
        return
    (width, height), where = found
    if width * height < _TIMES * edge * edge:
        return
    slow = max(width, height) >= _LARGE_PX and case.epochs != 1 and not _CACHED.search(case.texts)
    kind, basis, shown = case.weigh("choke" if slow else "note")
    said = f"images of about {width} × {height} px ({where}) are decoded at full size for an input of {edge} px, in every epoch{case.told()}"
    figures = {**shown, "image_px": [width, height], "input_px": edge, "size_from": where}
    yield one_hit(own, message=said, fix=_fix(program, own[0], edge), kind=kind, basis=basis, evidence=figures)


def _fix(program: Program, site: ast.AST, edge: int) -> str:
    name = program.name(site)
    cheap = ""
    if name.endswith("Image.open"):
        cheap = f"; for JPEG, `image.draft('RGB', ({edge}, {edge}))` right after `Image.open` decodes fewer pixels"
    elif name.endswith("cv2.imread"):
        cheap = "; for JPEG, `cv2.imread(path, cv2.IMREAD_REDUCED_COLOR_2)` decodes a quarter of the pixels"
    elif "decode_jpeg" in name:
        cheap = "; `tf.io.decode_jpeg(data, ratio=2)` decodes a quarter of the pixels"
    return f"resize the files once to about {edge} px (somewhat more if crops are taken) and train on the copies{cheap}"


def _sites(program: Program) -> tuple[list[ast.AST], set[int]]:
    """Where images are decoded for each sample, and the sizes they are brought to first. Crops at full size need all pixels."""
    inside = sample_functions(program)
    sites: list[ast.AST] = [call for call in program.calls if program.function(call) in inside and is_decode(program, call)]
    sites += [call for call in program.calls_to(*FOLDER_DATASETS) if program.name(call).startswith("torchvision.")]
    edges: set[int] = set()
    for call in program.calls_to(*_READERS):
        name, position = _READERS[program.name(call).rpartition(".")[2]]
        size = value(program, given(program, call, name, position))
        sites.append(call)
        edges.add(max(size) if isinstance(size, tuple) and all(isinstance(one, int) for one in size) else 256)
    for call in compositions(program):
        first = next((size for step in listed_transforms(program, call) if (size := size_of(program, step)) is not None), None)
        crops = [step for step in listed_transforms(program, call) if program.name(step).rpartition(".")[2] in ("RandomCrop", "CenterCrop", "Resize", "RandomResizedCrop")]
        if first is not None and crops and program.name(crops[0]).rpartition(".")[2] not in ("RandomCrop", "CenterCrop"):
            edges.add(first)
    for call in program.calls_to("DataBlock", "from_folder", "from_df", "from_csv", "from_name_func", "from_path_func", "from_name_re", "from_lists"):
        for step in transform_steps(program, items) if (items := given(program, call, "item_tfms")) is not None else ():
            sites.append(step)
            edges.add(size_of(program, step) or 256)
    for call in program.calls_to("resize", "load_img"):
        if program.function(call) in inside:
            sizes = [value(program, end) for part in (*call.args, *(word.value for word in call.keywords)) for end in origins(program, part)]
            edges |= {max(size) for size in sizes if isinstance(size, tuple) and len(size) in (2, 3) and all(isinstance(one, int) for one in size)}
    return sites, edges


def _seen_size(case: Case) -> tuple[tuple[int, int], str] | None:
    """The size of the images: printed by the notebook, or that of a set that everybody knows and that was not shrunk before."""
    sizes = [
        (int(found[1]), int(found[2]))
        for cell in case.program.source.cells if cell.outputs
        for sign in _PRINTED for found in sign.finditer(cell.outputs)
    ]  # fmt: skip
    sizes = [size for size in sizes if min(size) >= 300 and max(size) >= _LARGE_PX]
    if sizes:
        return max(sizes), "by the saved outputs"
    known = known_size([text for text in constants(case.program) if not _SHRUNK.search(text)])
    return (known, "a known data set") if known is not None else None
