"""Are photographs of thousands of pixels decoded at full size, in every epoch, for a network that sees a few hundred?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import (
    FOLDER_DATASETS,
    Feed,
    class_work,
    compositions,
    constants,
    edge_of,
    feeds,
    is_decode,
    known_size,
    listed_transforms,
    pipeline,
    random_steps,
    sample_functions,
    sample_work,
    size_of,
    transform_steps,
)  # fmt: skip
from unchoke_doctor.code.program import Program
from unchoke_doctor.code.trace import given, origins, value
from unchoke_doctor.rules import Case, Hit
from unchoke_doctor.rules.frozen_recomputed import check as check_frozen

_LARGE_PX, _TIMES, _MANY_EPOCHS = 1000, 4, 5
"""Edge in pixels, and pixels decoded per pixel used, from which a smaller copy pays; epochs from which any copy does."""
_PRINTED = (
    re.compile(r"size=(\d{3,5})x(\d{3,5})"),
    re.compile(r"(?<![\d, ])\((\d{3,5}), (\d{3,5}), [134]\)"),
    re.compile(r"Size\(\[[134], (\d{3,5}), (\d{3,5})\]\)"),
)
_SHRUNK = re.compile(
    r"resiz|small|thumb|(?<!\d)(\d{2,3})x\1(?!\d)|[-_/](?:128|224|256|300|320|384|512|600)(?:px)?(?:[-_/]|$)", re.IGNORECASE
)
_READERS = {
    "flow_from_directory": ("target_size", 1),
    "flow_from_dataframe": ("target_size", 5),
    "image_dataset_from_directory": ("image_size", 7),
}
_FASTAI = ("DataBlock", "from_folder", "from_df", "from_csv", "from_name_func", "from_path_func", "from_name_re", "from_lists")
_CROPS = ("RandomCrop", "CenterCrop", "Resize", "RandomResizedCrop")
_TRANSFORMS = re.compile(r"transform|aug|preprocess|tfms", re.IGNORECASE)
_RANDOM_WORDS = re.compile(r"random|aug(?!ust)|flip|jitter|rotat|mixup|mosaic", re.IGNORECASE)
_CACHED = re.compile(r"\.cache\(|cache_images|cache_dir=|CacheDataset|PersistentDataset")
_CHEAPER = {  # by what decodes, for JPEG
    "Image.open": "`image.draft('RGB', ({edge}, {edge}))` right after `Image.open` decodes fewer pixels",
    "cv2.imread": "`cv2.imread(path, cv2.IMREAD_REDUCED_COLOR_2)` decodes a quarter of the pixels",
    "decode_jpeg": "`tf.io.decode_jpeg(data, ratio=2)` decodes a quarter of the pixels",
}


def check(case: Case) -> Iterator[Hit]:
    yield from _full_size(case)
    program = case.program
    if _CACHED.search(case.texts) or any(hit.kind == "choke" for hit in check_frozen(case)):
        return
    for training in case.trainings:  # files that are decoded again in every epoch, though nothing about the result is random
        data = training.data
        if data is None or (training.epochs or 0) < _MANY_EPOCHS or random_steps(program, data):
            continue
        found = [(feed, work) for feed in feeds(program, data) if (work := _decoding(program, feed, data)) is not None]
        if nodes := [node for feed, work in found for node in (feed.call, work, training.node) if program.is_own(node)]:
            said = f"nothing changes the images at random, yet each of {training.epochs} epochs decodes and resizes them again"
            fix = (
                "decode once and keep the result at the network's size (`.cache()` in tf.data; else uint8 in "
                "`np.lib.format.open_memmap`, which workers share), if it fits on the disk"
            )
            yield case.hit(nodes, said, fix, cacheable=True)
            return


def _decoding(program: Program, feed: Feed, data: ast.expr) -> ast.AST | None:
    """What decodes the files of a feed: a call or a class; None where it is not known, or may do something at random."""
    target, last = program.target(feed.call), program.last(feed.call)
    if feed.kind in ("flow", "tf.data") and last in _READERS:
        return feed.call
    if feed.kind == "tf.data":
        mapped = [
            program.definition(step.args[0]) for step in pipeline(program, data) if program.last(step) == "map" and step.args
        ]
        return next((call for made in mapped if made for call in program.reached(made) if is_decode(program, call)), None)
    if feed.kind == "sequence" and isinstance(target, ast.ClassDef):
        work = class_work(program, target)
    elif feed.kind == "loader" and (dataset := given(program, feed.call, "dataset", 0)) is not None:
        work = sample_work(program, dataset)
        ends = [end for end in origins(program, dataset) if isinstance(end, ast.Call)]
        words = [word.value for end in ends for word in end.keywords if word.arg and _TRANSFORMS.search(word.arg)]
        words += [part for end in ends for part in end.args if _TRANSFORMS.search(program.text(part))]
        unknown = any(value(program, word) is not None and not transform_steps(program, word) for word in words)
        classes = [one for end in ends if (one := program.target(end)) is not None]
        if not ends or unknown or any(_RANDOM_WORDS.search(program.text(one, 20_000)) for one in classes):
            return None
    else:
        return None
    random = work.source is not None and _RANDOM_WORDS.search(program.text(work.source, 20_000))
    return work.source if work.kind == "decodes" and not random else None


def _full_size(case: Case) -> Iterator[Hit]:
    program = case.program
    sites, edges = _sites(program)
    own = [site for site in sites if program.is_own(site)]
    if not own or not edges:
        return
    edge, found = max(edges), _seen_size(case)
    if found is None:
        if edge <= 512:
            said = f"`{program.text(own[0])}` decodes every image at full size for an input of {edge} px, in every epoch"
            fix = "if the files are more than twice as large as that, resize them once and train on the copies"
            yield case.hit(own, said, fix, case.loading_kind("note"), input_px=edge)
        return
    width, height, where = found
    if width * height >= _TIMES * edge * edge:
        slow = max(width, height) >= _LARGE_PX and case.epochs != 1 and not _CACHED.search(case.texts)
        size, name = f"{width} × {height} px ({where})", program.name(own[0])
        said = f"images of about {size} are decoded at full size for an input of {edge} px, in every epoch"
        cheap = next((f"; for JPEG, {how.format(edge=edge)}" for word, how in _CHEAPER.items() if word in name), "")
        fix = f"resize the files once to about {edge} px (somewhat more if crops are taken) and train on the copies{cheap}"
        yield case.hit(own, said, fix, "choke" if slow else "note", image_px=[width, height], input_px=edge, size_from=where)


def _sites(program: Program) -> tuple[list[ast.AST], set[int]]:
    """Where images are decoded for each sample, and the sizes they are brought to first. Crops at full size need all pixels."""
    inside = sample_functions(program)
    sites: list[ast.AST] = [call for call in program.calls if program.function(call) in inside and is_decode(program, call)]
    sites += [call for call in program.calls_to(*FOLDER_DATASETS) if program.name(call).startswith("torchvision.")]
    edges: set[int] = set()
    for call in program.calls_to(*_READERS):
        sites.append(call)
        edges.add(edge_of(value(program, given(program, call, *_READERS[program.last(call)]))) or 256)
    for call in compositions(program):
        steps = list(listed_transforms(program, call))
        first = next((size for step in steps if (size := size_of(program, step)) is not None), None)
        crop = next((program.last(step) for step in steps if program.last(step) in _CROPS), "")
        if first is not None and crop in ("Resize", "RandomResizedCrop"):
            edges.add(first)
    for call in program.calls_to(*_FASTAI):
        for step in transform_steps(program, items) if (items := given(program, call, "item_tfms")) is not None else ():
            sites.append(step)
            edges.add(size_of(program, step) or 256)
    for call in program.calls_to("resize", "load_img"):
        if program.function(call) in inside:
            edges |= {edge_of(value(program, part)) for part in (*call.args, *(word.value for word in call.keywords))}
    return sites, edges - {0}


def _seen_size(case: Case) -> tuple[int, int, str] | None:
    """The size of the images: printed by the notebook, or that of a set that everybody knows and that was not shrunk before."""
    printed = "\n".join(cell.outputs for cell in case.program.source.cells)
    sizes = [(int(found[1]), int(found[2])) for sign in _PRINTED for found in sign.finditer(printed)]
    sizes = [size for size in sizes if min(size) >= 300 and max(size) >= _LARGE_PX]
    if sizes:
        return *max(sizes), "by the saved outputs"
    known = known_size(tuple(text for text in constants(case.program) if not _SHRUNK.search(text)))
    return (*known, "a known data set") if known is not None else None
