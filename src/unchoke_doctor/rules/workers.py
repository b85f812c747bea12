"""Are images decoded one after another in the process that trains (no-workers)? Do the workers fit the cores (few-workers)?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import RANDOM, Feed, Loader, class_work, feeds, is_decode, loaders, size_of, transform_steps
from unchoke_doctor.code.program import LOOPS
from unchoke_doctor.code.trace import MISSING, UNKNOWN, argument, argument_values, given, origins, values
from unchoke_doctor.code.training import torch_passes
from unchoke_doctor.fixes import add_keyword
from unchoke_doctor.rules import Case, Edit, Hit

_READS = frozenset({"numpy.load", "torch.load", "pickle.load", "open", "h5py.File", "numpy.fromfile", "joblib.load"})
_PIXELS = re.compile(
    r"(?:cv2|skimage|scipy\.ndimage|PIL|imgaug|albumentations|imutils|pydicom|nibabel|SimpleITK|tifffile|rasterio)\."
    r"|.*\.flow(?:_from_\w+)?$"
)
"""Calls that work on images in Python, one at a time."""
_TRANSFORM = re.compile(r"(?:transforms?|tfms|augment\w*|preprocess\w*|processor)$", re.IGNORECASE)
_FEEDS = re.compile(r"(?:gen|generator|loader|sequence|batches|dataset)\w*$", re.IGNORECASE)
_IMAGE_LIBRARIES = (
    "torchvision", "PIL", "cv2", "albumentations", "timm", "skimage", "segmentation_models_pytorch", "imgaug", "pydicom",
)  # fmt: skip
_IMAGE_MODELS = ("ImageProcessor", "FeatureExtractor", "ForImageClassification", "ForSemanticSegmentation", "ForObjectDetection")
_NO_IMAGES = re.compile(r"tensor|text|token|tabular|numpy|array|range|zip|list|data_?frame|embed|feature", re.IGNORECASE)
_PRINTED_CORES = re.compile(r"(?:^|CPU\(s\):|\D )\s*(\d{1,3})\s*$", re.MULTILINE)
_COLOUR_PX, _LARGE_PX = 32, 96
"""Edges in pixels from which random steps, or resizing, of an image that lies in memory cost as much as decoding it."""
_KERAS_FIXES = {
    "flow": "read the folder with `keras.utils.image_dataset_from_directory(…)` and `.prefetch(tf.data.AUTOTUNE)`, which decodes "
    "on all cores; with Keras 2 `workers=4` in `fit` is the smaller change",
    "sequence": "give the Sequence `workers=4` (Keras 3: `super().__init__(workers=4, use_multiprocessing=True)`; Keras 2: "
    "`fit(…, workers=4, use_multiprocessing=True)`)",
    "generator": "make it a `keras.utils.PyDataset` with `workers=4`, or a tf.data pipeline with a parallel `map`: a generator "
    "cannot be shared out",
}


def check(case: Case) -> Iterator[Hit]:
    program = case.program
    own = [one for one in loaders(program) if program.is_own(one.call) and not _is_peeked(case, one.call)]
    alone = [one for one in own if all(number in (0, None, False) for number in one.workers)]
    if decoding := [(one.call, why) for one in alone if (why := _work_per_sample(case, one))]:
        decoding.sort(key=lambda one: one[0] not in case.fed)  # where a reviewer points comes first
        call, why = decoding[0]
        is_set = argument(program, call, "num_workers", 5) != MISSING
        number, reason = _suggested(case)
        said = f"`{program.text(call, 50)}` {'sets `num_workers` to 0' if is_set else 'has no `num_workers`'}: {why}, in the "
        fix = f"give it `num_workers={number}, persistent_workers=True`{reason}{_spawn_advice(case)}"
        added = [_add(case, one, "num_workers", f"{number}, persistent_workers=True") for one, _ in decoding if not is_set]
        yield case.hit(
            [one for one, _ in decoding], said + "process that trains, between two steps", fix, case.loading_kind("choke"),
            shown=tuple(sum(added, ())), loaders=len(decoding), num_workers=0,
        )  # fmt: skip
    yield from _keras_hits(case)
    name = "dataloader_num_workers"  # Hugging Face
    for call in program.own_calls("TrainingArguments", "Seq2SeqTrainingArguments"):
        if argument_values(program, call, name, None, 0) == [0] and any(sign in case.texts for sign in _IMAGE_MODELS):
            number = _suggested(case)[0]
            said = f"`{program.last(call)}` sets no `{name}`: images are decoded and processed in the process that trains"
            edits = _add(case, call, name, str(number))
            yield case.hit([call], said, f"add `{name}={number}`{_spawn_advice(case)}", shown=edits, num_workers=0)
    yield from _told_not_to(case)
    for training in case.trainings:  # a loop that decodes its images itself
        loop = training.node
        if isinstance(loop, LOOPS) and program.is_own(loop) and not feeds(program, training.data):
            body = (call for statement in loop.body for call in program.reached(statement))
            if decode := next((call for call in body if is_decode(program, call)), None):
                said = f"the training loop calls `{program.text(decode.func)}` itself: every image is decoded between two steps"
                fix = "put the reading into a `Dataset` and read it through a `DataLoader` with `num_workers=4`"
                yield case.hit([loop], said, fix)


def _is_peeked(case: Case, loader: ast.Call) -> bool:
    """Is a loader made only to look at a batch, `next(iter(loader))`, or never read where a network runs?"""
    targets: list[ast.expr] = getattr(case.program.parents.get(loader), "targets", [])
    name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
    uses, runs = case.words[name], bool(case.trainings or torch_passes(case.program))
    peeks = case.texts.count(f"next(iter({name}))") if 0 < uses <= 3 else 0
    return (peeks > 0 or runs) and uses == peeks + 1


def _add(case: Case, call: ast.Call, name: str, value: str) -> tuple[Edit, ...]:
    edit = add_keyword(case.program, call, name, value)
    return (edit,) if edit is not None else ()


def _work_per_sample(case: Case, loader: Loader) -> str:
    """What the dataset does for one sample; empty if that is cheap or if the class shows nothing that reads."""
    program = case.program
    if loader.work.kind == "decodes" or loader.dataset is None:
        return loader.work.why
    ends = [end for end in origins(program, loader.dataset) if isinstance(end, ast.Call)]
    owners = [owner for end in ends if isinstance(owner := program.target(end), ast.ClassDef)]
    for owner in owners:
        method = program.method(owner, "__getitem__")
        for call in program.reached(method) if method is not None else ():
            name, text = program.name(call), program.text(call.func)
            if name in _READS or _PIXELS.match(name) or _TRANSFORM.search(text):
                return f"`{owner.name}` calls `{text}` for each sample"
    parts = [part for end in ends for part in (*end.args, *(word.value for word in end.keywords))]
    steps = [step for part in parts for step in transform_steps(program, part)]
    if any((size_of(program, step) or 0) >= _LARGE_PX for step in steps):
        return "the dataset resizes each sample"
    random = next((program.last(step) for step in steps if program.last(step) in RANDOM), "")
    if random and loader.work.edge >= _COLOUR_PX:
        return f"`{random}` and the steps behind it run in Python for each sample"
    if loader.work.kind == "memory" or owners or any(_NO_IMAGES.search(program.name(end)) for end in ends):
        return ""
    fits = program.imports_any(*_IMAGE_LIBRARIES)
    fits = fits or (loader.call in case.fed and not program.imports_any("transformers", "datasets", "torchtext"))
    return "whatever the dataset does for a sample happens there" if fits else ""


def _suggested(case: Case) -> tuple[int, str]:
    """A number of workers and where it comes from."""
    if (cores := known_cores(case)) is not None:
        return max(1, min(cores, 8)), f" (the saved outputs show {cores} cores)"
    if "/content/" in case.texts or "google.colab" in case.texts:
        return 2, " (Colab's usual machine has 2 cores)"
    if "/kaggle/" in case.texts or "../input" in case.texts:
        return 4, " (Kaggle's machines have 4 cores)"
    return 4, ", up to the number of cores"


def _spawn_advice(case: Case) -> str:
    notebook = case.program.source.is_notebook
    if case.outputs.spawns and notebook:
        return "; this notebook ran on Windows or macOS, where workers are spawned: the dataset's class must be in a .py file"
    if case.outputs.spawns or not (notebook or "__main__" in case.texts or case.outputs.on_linux):
        return "; on Windows and macOS the training must then start under `if __name__ == '__main__':`"
    return ""


def known_cores(case: Case) -> int | None:
    """Cores by the saved outputs: torch's warning, or a cell that prints `cpu_count()` or `nproc`."""
    for cell in case.program.source.cells if case.outputs.cores is None else ():
        asks = cell.kind == "code" and re.search(r"\bcpu_count\(|\bnproc\b|\blscpu\b", cell.text)
        if asks and (found := _PRINTED_CORES.search(cell.outputs)):
            return int(found[1]) or None
    return case.outputs.cores


def _keras_hits(case: Case) -> Iterator[Hit]:
    """`fit` reads generators and Sequences with one thread unless it is given more."""
    program = case.program
    found: dict[str, list[tuple[ast.Call, Feed, str]]] = {}
    reads = [(one.node, one.data) for one in case.trainings if one.kind == "keras"]
    passes = program.calls_to("predict_generator", "evaluate_generator", "predict", "evaluate") if not case.trainings else []
    for node, data in reads or [(call, call.args[0]) for call in passes if call.args]:
        if not isinstance(node, ast.Call) or not program.is_own(node) or data is None:
            continue
        if all(number in (0, 1) for number in argument_values(program, node, "workers", None, 1)):
            for feed in feeds(program, data) or _unknown_feeds(case, data):
                if why := _keras_work(case, feed):
                    found.setdefault(feed.kind, []).append((node, feed, why))
    for kind, some in found.items():
        nodes = [node for node, _, _ in some] + [feed.call for _, feed, _ in some if program.is_own(feed.call)]
        said = f"`{program.text(some[0][0], 50)}` reads with one thread: {some[0][2]}"
        yield case.hit(nodes, said, _KERAS_FIXES[kind], case.loading_kind("choke"), workers=1)


def _unknown_feeds(case: Case, data: ast.expr) -> list[Feed]:
    """A Sequence or generator of a module that is not here, by its name, in a program about images."""
    program = case.program
    ends = origins(program, data) if program.imports_any(*_IMAGE_LIBRARIES) else []
    unknown = [end for end in ends if isinstance(end, ast.Call) and program.target(end) is None]
    named = [end for end in unknown if _FEEDS.search(program.last(end))]
    return [Feed("sequence", end) for end in named if not program.name(end).startswith(("tensorflow", "keras", "torch"))]


def _keras_work(case: Case, feed: Feed) -> str:
    program, target = case.program, case.program.target(feed.call)
    if feed.kind == "flow" and program.last(feed.call) != "flow":
        return f"`{program.last(feed.call)}` decodes and resizes one image after another in Python"
    if feed.kind == "sequence" and isinstance(target, ast.ClassDef):
        init, work = program.method(target, "__init__"), class_work(program, target)
        made = [feed.call, *(program.calls_in(init) if init is not None else ())]
        if any(word.arg == "workers" for call in made for word in call.keywords):
            return ""
        images = work.kind == "unknown" and program.imports_any(*_IMAGE_LIBRARIES)
        return work.why if work.kind == "decodes" else f"`{target.name}` makes each batch in Python" if images else ""
    if feed.kind == "sequence":
        return f"`{program.text(feed.call.func)}` makes each batch in Python"
    calls = program.reached(target) if feed.kind == "generator" and target else []
    works = [call for call in calls if is_decode(program, call) or _PIXELS.match(program.name(call))]
    return f"the generator `{program.text(feed.call.func)}` calls `{program.text(works[0].func)}` for each image" if works else ""


def _told_not_to(case: Case) -> Iterator[Hit]:
    """fastai and YOLO start workers by themselves, unless they are told not to."""
    program, told = case.program, []
    if program.imports_any("fastai"):
        makers = program.own_calls("dataloaders", "ImageDataLoaders", "databunch", "DataLoaders")
        makers += [call for call in program.calls if ".ImageDataLoaders.from_" in f".{program.name(call)}"]
        told = [(call, "num_workers") for call in makers]
    told += [(one.node, "workers") for one in case.trainings if one.kind == "yolo" and isinstance(one.node, ast.Call)]
    for call, name in told:
        if program.is_own(call) and (expr := given(program, call, name)) is not None and values(program, expr) == [0]:
            said = f"`{name}=0` turns the loader processes off: images are decoded in the process that trains"
            yield case.hit([call], said, f"leave `{name}` out: the default fits the machine{_spawn_advice(case)}", num_workers=0)


def check_few(case: Case) -> Iterator[Hit]:
    """Too few, too many."""
    program, cores = case.program, known_cores(case)
    own = [one for one in loaders(program) if program.is_own(one.call) and UNKNOWN not in one.workers]
    some = [(one, max(one.workers)) for one in own if all(isinstance(n, int) and n > 0 for n in one.workers)]
    many = [(one.call, number) for one, number in some if cores is not None and number > cores]
    few = [(one.call, number) for one, number in some if one.work.kind != "memory" and number <= 2 and (cores or 4) >= 2 * number]
    if many and cores is not None:
        number = max(number for _, number in many)
        said = f"{number} workers on {cores} cores: they take turns, and each costs memory and time to start"
        fix, figures = f"`num_workers={cores}`, or `min({number}, os.cpu_count())`", {"num_workers": number, "cores": cores}
        first, *further = (call for call, _ in many)
        yield Hit(first, said, fix, "choke" if number >= 4 * cores else "note", "outputs", figures, tuple(further))
    if few:
        number = max(number for _, number in few)
        told = f", the saved outputs show {cores} cores" if cores is not None else ""
        said = f"{'one worker decodes' if number == 1 else f'{number} workers decode'} all images whatever the machine has{told}"
        fix = f"`num_workers={'min(8, os.cpu_count())' if cores is None else min(cores, 8)}`"
        yield case.hit(
            [call for call, _ in few], said, fix, "choke" if number == 1 or (cores or 0) >= 8 else "note",
            basis="outputs" if cores is not None else None, num_workers=number, cores=cores,
        )  # fmt: skip
