"""Are images decoded one after another in the process that trains (no-workers)? Do the workers fit the cores (few-workers)?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke_doctor.code.data import Feed, Loader, class_work, feeds, is_decode, loaders, size_of, transform_steps
from unchoke_doctor.code.program import LOOPS
from unchoke_doctor.code.trace import MISSING, UNKNOWN, argument, argument_values, given, origins, values
from unchoke_doctor.code.training import Training
from unchoke_doctor.rules import Case, Edit, Hit, one_hit

_READS = frozenset({"numpy.load", "torch.load", "pickle.load", "open", "h5py.File", "numpy.fromfile", "joblib.load"})
_IMAGE_MODELS = ("ImageProcessor", "FeatureExtractor", "ForImageClassification", "ForSemanticSegmentation", "ForObjectDetection")
_CORES = re.compile(r"\bcpu_count\(|\bnproc\b|\blscpu\b")
_LARGE_PX = 96
"""Edge in pixels from which resizing an image that lies in memory costs as much as decoding it."""


def check(case: Case) -> Iterator[Hit]:
    alone = [loader for loader in loaders(case.program) if case.program.is_own(loader.call) and _is_alone(loader)]
    decoding = [(loader, why) for loader in alone if (why := _work_per_sample(case, loader))]
    if decoding:
        yield _loader_hit(case, _training_first(case, decoding))
    yield from _keras_hits(case)
    yield from _trainer_hits(case)
    yield from _library_hits(case)
    yield from _loop_hits(case)


def _is_alone(loader: Loader) -> bool:
    return bool(loader.workers) and all(number in (0, None, False) for number in loader.workers)


def _work_per_sample(case: Case, loader: Loader) -> str:
    """What the dataset does for one sample; empty if that is cheap or if the class shows nothing that reads."""
    program = case.program
    if loader.work.kind == "decodes":
        return loader.work.why
    if loader.dataset is None:
        return ""
    ends = [end for end in origins(program, loader.dataset) if isinstance(end, ast.Call)]
    owners = [owner for end in ends if isinstance(owner := program.target(end), ast.ClassDef)]
    methods = [method for owner in owners if (method := program.method(owner, "__getitem__")) is not None]
    for method in methods:
        for call in program.reached(method):
            if program.name(call) in _READS:
                return f"`{owners[0].name}` calls `{program.text(call.func)}` for each sample"
    steps = [step for end in ends for part in (*end.args, *(word.value for word in end.keywords)) for step in transform_steps(program, part)]
    if any((size_of(program, step) or 0) >= _LARGE_PX for step in steps):
        return "the dataset resizes each sample"
    if loader.work.kind == "memory" or methods or any(program.target(end) is None for end in ends):
        return ""
    return "whatever the dataset does for a sample happens there" if _shows_images(case) else ""


def _shows_images(case: Case) -> bool:
    return case.program.imports_any("torchvision", "PIL", "cv2", "albumentations", "timm", "skimage") or "image" in case.texts.lower()


def _training_first(case: Case, some: list[tuple[Loader, str]]) -> list[tuple[Loader, str]]:
    """The loader that a training reads comes first: that is where a reviewer points."""
    fed = {feed.call for training in case.trainings for feed in feeds(case.program, training.data)}
    return sorted(some, key=lambda one: one[0].call not in fed)


def _loader_hit(case: Case, some: list[tuple[Loader, str]]) -> Hit:
    program = case.program
    loader, why = some[0]
    kind, basis, evidence = case.weigh()
    set_to_0 = argument(program, loader.call, "num_workers", 5) != MISSING
    number, reason = _suggested(case)
    return one_hit(
        [one.call for one, _ in some],
        message=f"`{program.text(loader.call, 50)}` {'sets `num_workers` to 0' if set_to_0 else 'has no `num_workers`'}: {why}, in the "
        f"process that trains, between two steps{case.told()}",
        fix=f"give it `num_workers={number}, persistent_workers=True`{reason}{_spawn_advice(case)}",
        kind=kind,
        basis=basis,
        evidence={**evidence, "loaders": len(some), "num_workers": 0},
        shown=() if set_to_0 else tuple(_inserted(case, one.call, f"num_workers={number}, persistent_workers=True") for one, _ in some),
    )


def _inserted(case: Case, call: ast.Call, text: str) -> Edit:
    """An argument behind the last one of a call."""
    last = max((*call.args, *(word.value for word in call.keywords)), key=case.program.order.__getitem__)
    place = case.program.place(last)
    end = type(place)(place.cell, place.end_line, place.end_column, place.end_line, place.end_column)
    return Edit(end, f", {text}")


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
    if case.outputs.spawns and case.program.source.is_notebook:
        return "; this notebook ran on Windows or macOS, where workers are spawned: the dataset's class and its functions must be in a .py file"
    if case.outputs.spawns or (not case.program.source.is_notebook and "__main__" not in case.texts and not case.outputs.on_linux):
        return "; on Windows and macOS the training must then start under `if __name__ == '__main__':`"
    return ""


def known_cores(case: Case) -> int | None:
    """Cores by the saved outputs: torch's warning, or a cell that prints `cpu_count()` or `nproc`."""
    if case.outputs.cores is not None:
        return case.outputs.cores
    for cell in case.program.source.cells:
        if cell.kind == "code" and _CORES.search(cell.text) and (found := re.search(r"(?:^|CPU\(s\):|\D )\s*(\d{1,3})\s*$", cell.outputs, re.MULTILINE)):
            return int(found[1]) or None
    return None


# Keras, trainers, libraries, plain loops ----------------------------------------------------------------------------------


def _keras_hits(case: Case) -> Iterator[Hit]:
    """`fit` reads generators and Sequences with one thread unless it is given more."""
    found: dict[str, list[tuple[Training, Feed, str]]] = {}
    for training in case.trainings:
        if training.kind != "keras" or not isinstance(training.node, ast.Call) or not case.program.is_own(training.node):
            continue
        if not all(number in (0, 1) for number in argument_values(case.program, training.node, "workers", None, 1)):
            continue
        for feed in feeds(case.program, training.data):
            if why := _keras_work(case, feed):
                found.setdefault(feed.kind, []).append((training, feed, why))
    for kind, some in found.items():
        weight, basis, evidence = case.weigh()
        training, feed, why = some[0]
        nodes = [one.node for one, _, _ in some] + [other.call for _, other, _ in some if case.program.is_own(other.call)]
        fix = {
            "flow": "read the folder with `keras.utils.image_dataset_from_directory(…)` and `.prefetch(tf.data.AUTOTUNE)`, which decodes on all "
            "cores; with Keras 2 `workers=4` in `fit` is the smaller change",
            "sequence": "give the Sequence `workers=4` (Keras 3: `super().__init__(workers=4, use_multiprocessing=True)`; Keras 2: `fit(…, workers=4, "
            "use_multiprocessing=True)`)",
        }.get(kind, "make it a `keras.utils.PyDataset` with `workers=4`, or a tf.data pipeline with a parallel `map`: a generator cannot be shared out")
        yield one_hit(
            list(dict.fromkeys(nodes)), message=f"`{case.program.text(training.node, 50)}` reads with one thread: {why}{case.told()}", fix=fix,
            kind=weight, basis=basis, evidence={**evidence, "workers": 1},
        )  # fmt: skip


def _keras_work(case: Case, feed: Feed) -> str:
    program = case.program
    last, target = program.name(feed.call).rpartition(".")[2], program.target(feed.call)
    if feed.kind == "flow" and last != "flow":
        return f"`{last}` decodes and resizes one image after another in Python"
    if feed.kind == "sequence" and isinstance(target, ast.ClassDef) and not any(word.arg == "workers" for word in feed.call.keywords):
        init = program.method(target, "__init__")
        if any(word.arg == "workers" for call in program.calls_in(init) for word in call.keywords) if init is not None else False:
            return ""
        return work.why if (work := class_work(program, target)).kind == "decodes" else ""
    if feed.kind == "generator" and target is not None:
        decodes = next((call for call in program.reached(target) if is_decode(program, call)), None)
        return f"the generator `{program.text(feed.call.func)}` calls `{program.text(decodes.func)}` for each image" if decodes is not None else ""
    return ""


def _trainer_hits(case: Case) -> Iterator[Hit]:
    """`TrainingArguments` of a Hugging Face trainer that reads images: no workers is the default."""
    program = case.program
    for call in program.own_calls("TrainingArguments", "Seq2SeqTrainingArguments"):
        if argument_values(program, call, "dataloader_num_workers", None, 0) != [0] or not any(sign in case.texts for sign in _IMAGE_MODELS):
            continue
        kind, basis, evidence = case.weigh()
        yield Hit(
            call, f"`{program.name(call).rpartition('.')[2]}` sets no `dataloader_num_workers`: images are decoded and processed in the process that "
            f"trains{case.told()}", f"add `dataloader_num_workers={_suggested(case)[0]}`{_spawn_advice(case)}", kind, basis,
            {**evidence, "num_workers": 0}, shown=(_inserted(case, call, f"dataloader_num_workers={_suggested(case)[0]}"),),
        )  # fmt: skip


def _library_hits(case: Case) -> Iterator[Hit]:
    """fastai and YOLO start workers by themselves, unless they are told not to."""
    program = case.program
    makers = [call for call in program.own_calls("dataloaders", "ImageDataLoaders", "databunch", "DataLoaders") if program.imports_any("fastai")]
    makers += [call for call in program.calls if program.is_own(call) and ".ImageDataLoaders.from_" in f".{program.name(call)}"]
    for call in [*makers, *(one.node for one in case.trainings if one.kind == "yolo" and program.is_own(one.node))]:
        name = "num_workers" if call in makers else "workers"
        if isinstance(call, ast.Call) and (expr := given(program, call, name)) is not None and values(program, expr) == [0]:
            kind, basis, evidence = case.weigh()
            yield Hit(call, f"`{name}=0` turns the loader processes off: images are decoded in the process that trains{case.told()}",
                      f"leave `{name}` out: the default fits the machine{_spawn_advice(case)}", kind, basis, {**evidence, name: 0})  # fmt: skip


def _loop_hits(case: Case) -> Iterator[Hit]:
    """A training loop that decodes its images itself, without any loader."""
    program = case.program
    for training in case.trainings:
        if not isinstance(training.node, LOOPS) or not program.is_own(training.node) or any(feed.kind == "loader" for feed in feeds(program, training.data)):
            continue
        body = [call for statement in training.node.body for call in program.reached(statement)]
        if decode := next((call for call in body if is_decode(program, call)), None):
            kind, basis, evidence = case.weigh()
            yield Hit(training.node, f"the training loop calls `{program.text(decode.func)}` itself: every image is decoded between two steps{case.told()}",
                      "put the reading into a `Dataset` and read it through a `DataLoader` with `num_workers=4`", kind, basis, evidence)  # fmt: skip


# Too few, too many --------------------------------------------------------------------------------------------------------


def check_few(case: Case) -> Iterator[Hit]:
    program, cores = case.program, known_cores(case)
    some = [one for one in loaders(program) if program.is_own(one.call) and one.workers and all(isinstance(n, int) and n > 0 for n in one.workers)]
    many = [one for one in some if cores is not None and max(one.workers) > cores]
    if many and cores is not None:
        number = max(max(one.workers) for one in many)
        yield one_hit(
            [one.call for one in many], kind="choke" if number >= 4 * cores else "note", basis="outputs", evidence={"num_workers": number, "cores": cores},
            message=f"{number} workers on {cores} cores: they take turns, and each costs memory and time to start",
            fix=f"`num_workers={cores}`, or `min({number}, os.cpu_count())`",
        )  # fmt: skip
    few = [one for one in some if one.work.kind != "memory" and UNKNOWN not in one.workers and max(one.workers) <= 2 and one not in many]
    few = [one for one in few if cores is None or cores >= 2 * max(one.workers)]
    if not few:
        return
    number = max(max(one.workers) for one in few)
    kind, basis, evidence = case.weigh("choke" if number == 1 or (cores is not None and cores >= 8) else "note")
    told = f", the saved outputs show {cores} cores" if cores is not None else ""
    yield one_hit(
        [one.call for one in few], kind=kind, basis="outputs" if cores is not None else basis, evidence={**evidence, "num_workers": number, "cores": cores},
        message=f"{'one worker decodes' if number == 1 else f'{number} workers decode'} all images whatever the machine has{told}{case.told()}",
        fix="`num_workers=min(8, os.cpu_count())`" if cores is None else f"`num_workers={min(cores, 8)}`",
    )  # fmt: skip
