"""How a program gets its samples: loaders, what a dataset does per sample, and the transforms in front of the network."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from unchoke_doctor.code.program import FUNCTIONS, Program, remembered
from unchoke_doctor.code.trace import UNKNOWN, argument_values, given, number, origins, value

# Datasets that decode a file per sample, and those that hold their samples in memory, with the edge of their images.
FOLDER_DATASETS = frozenset({
    "ImageFolder", "DatasetFolder", "CocoDetection", "CocoCaptions", "VOCDetection", "VOCSegmentation", "Cityscapes",
    "ImageNet", "Flowers102", "Food101", "OxfordIIITPet", "StanfordCars", "Caltech101", "Caltech256", "Places365", "CelebA",
    "INaturalist", "DTD", "EuroSAT", "FGVCAircraft", "GTSRB", "SUN397", "LSUN", "SBDataset", "Imagenette",
})  # fmt: skip
MEMORY_DATASETS = {
    "MNIST": 28, "FashionMNIST": 28, "KMNIST": 28, "EMNIST": 28, "QMNIST": 28, "USPS": 16, "CIFAR10": 32, "CIFAR100": 32,
    "SVHN": 32, "STL10": 96, "SEMEION": 16, "TensorDataset": 0,
}  # fmt: skip
_DECODERS = frozenset({
    "PIL.Image.open", "Image.open", "cv2.imread", "cv2.imdecode", "imageio.imread", "imageio.v2.imread", "imageio.v3.imread",
    "skimage.io.imread", "io.imread", "matplotlib.pyplot.imread", "plt.imread", "matplotlib.image.imread", "mpimg.imread",
    "torchvision.io.read_image", "torchvision.io.decode_image", "torchvision.io.decode_jpeg", "pydicom.dcmread",
    "pydicom.read_file", "pydicom.filereader.dcmread", "nibabel.load", "nib.load", "SimpleITK.ReadImage", "tifffile.imread",
    "rasterio.open", "gdal.Open", "osgeo.gdal.Open", "openslide.OpenSlide", "tensorflow.io.decode_jpeg",
    "tensorflow.io.read_file", "tensorflow.image.decode_jpeg", "tensorflow.image.decode_png", "tensorflow.io.decode_png",
    "tensorflow.io.decode_image", "tensorflow.image.decode_image",
})  # fmt: skip
_DECODER_NAMES = frozenset(
    {"imread", "imdecode", "load_img", "read_image", "pil_loader", "default_loader", "dcmread", "cv2_imread", "open_image"}
)
# Functions of modules that are not here, by their name.
_READS_IMAGE = re.compile(
    r"_*(?:cv2?_?)?(?:load|read|open|decode)_?(?:rgb_?|gray_?|one_?|single_?)?(?:img|image|picture|photo|jpe?g|png|tiff?|dicom|dcm|nifti)"
    r"(?:_?(?:from|by|file|path|rgb|gray|cv2?|pil|as|and|with)\w*)?$",
    re.IGNORECASE,
)
# Transforms that work on images one by one on the CPU; with their cost for a photograph of 500 px in milliseconds.
HEAVY = {
    "ElasticTransform": 20, "GridDistortion": 6, "OpticalDistortion": 6, "RandomPerspective": 8, "Perspective": 5,
    "RandomAffine": 4, "Affine": 4, "ShiftScaleRotate": 3, "SafeRotate": 3, "PiecewiseAffine": 40, "CLAHE": 4,
    "RandomFog": 15, "RandomRain": 8, "RandomSnow": 6, "RandomSunFlare": 8, "RandomShadow": 5, "MedianBlur": 3,
    "MotionBlur": 3, "GaussianBlur": 4, "GlassBlur": 60, "ISONoise": 8, "GaussNoise": 8, "AugMix": 20, "RandAugment": 6,
    "AutoAugment": 6, "TrivialAugmentWide": 4, "Superpixels": 60, "ZoomBlur": 20, "ColorJitter": 6, "HueSaturationValue": 3,
    "RandomRotation": 3, "Emboss": 4, "Sharpen": 4, "UnsharpMask": 6, "MultiplicativeNoise": 5, "Defocus": 10,
    "RandomGridShuffle": 2, "FancyPCA": 10, "Equalize": 2, "RandomToneCurve": 2,
}  # fmt: skip
RANDOM = frozenset({
    *HEAVY, "RandomHorizontalFlip", "RandomVerticalFlip", "RandomResizedCrop", "RandomCrop", "HorizontalFlip", "VerticalFlip",
    "Flip", "Transpose", "RandomRotate90", "RandomBrightnessContrast", "RandomGamma", "RandomErasing", "CoarseDropout",
    "Cutout", "RandomGrayscale", "RandomSizedCrop", "RandomBrightness", "RandomContrast", "Rotate", "RandomScale", "RandomFlip",
    "RandomZoom", "RandomTranslation", "RandomApply", "RandomChoice", "OneOf", "RandomInvert", "RandomPosterize",
    "RandomSolarize", "RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize", "ToGray", "ChannelShuffle",
    "aug_transforms", "RandomHeight", "RandomWidth",
})  # fmt: skip
SIZING = frozenset(
    {"Resize", "RandomResizedCrop", "CenterCrop", "RandomCrop", "RandomSizedCrop", "LongestMaxSize", "SmallestMaxSize", "Scale"}
)
# Known sets of photographs, by a part of their path or name: typical width and height.
KNOWN_SIZES = (
    (re.compile(r"plant-?pathology-?202[01]", re.IGNORECASE), (2048, 1365)),
    (re.compile(r"aptos-?2019|diabetic-?retinopathy-?(?:detection|resized)?", re.IGNORECASE), (2000, 1500)),
    (re.compile(r"siim-?isic|isic-?20(?:18|19|20)|isic-?archive", re.IGNORECASE), (1024, 768)),
    (re.compile(r"nih-?chest|chestx?-?ray-?(?:14|8)|nih-?(?:data|chest-xrays)", re.IGNORECASE), (1024, 1024)),
    (re.compile(r"chest-?xray-?pneumonia|chest_xray", re.IGNORECASE), (1300, 950)),
    (re.compile(r"rsna-?(?:pneumonia|breast)", re.IGNORECASE), (1024, 1024)),
    (re.compile(r"global-?wheat", re.IGNORECASE), (1024, 1024)),
    (re.compile(r"herbarium|happy-?whale|humpback", re.IGNORECASE), (1050, 700)),
    (re.compile(r"deepglobe|sn\dbuildings|xview2?\b", re.IGNORECASE), (1024, 1024)),
    (re.compile(r"understanding[_-]cloud", re.IGNORECASE), (2100, 1400)),
    (re.compile(r"severstal", re.IGNORECASE), (1600, 256)),
    (re.compile(r"carvana", re.IGNORECASE), (1918, 1280)),
    (re.compile(r"cityscapes|leftImg8bit", re.IGNORECASE), (2048, 1024)),
    (re.compile(r"bdd100k|great-?barrier-?reef", re.IGNORECASE), (1280, 720)),
    (re.compile(r"vinbigdata|ranzcr|siim-?covid", re.IGNORECASE), (2500, 2500)),
    (re.compile(r"hubmap|prostate-?cancer-?grade", re.IGNORECASE), (3000, 3000)),
    (re.compile(r"celeba-?(?:mask)?-?hq|\bffhq", re.IGNORECASE), (1024, 1024)),
    (re.compile(r"recursion-?cellular|protein-?atlas", re.IGNORECASE), (512, 512)),
    (re.compile(r"airbus-?ship|inria.?aerial", re.IGNORECASE), (768, 768)),
    (re.compile(r"cassava|camvid", re.IGNORECASE), (800, 600)),
    (re.compile(r"state-?farm|ham10000|skin-?cancer-?mnist", re.IGNORECASE), (600, 450)),
    (re.compile(r"\bvdd\b|semantic-?drone|aerial-?drone|uavid", re.IGNORECASE), (4000, 3000)),
    (re.compile(r"potsdam|landcover-?ai|massachusetts-?(?:roads|buildings)", re.IGNORECASE), (1500, 1500)),
    (re.compile(r"levir|loveda|\bdota\b|\bdfc2\d{3}", re.IGNORECASE), (1024, 1024)),
    (re.compile(r"bone-?age|rsna-?bone|\bmura\b|breakhis|\bbach\b", re.IGNORECASE), (1500, 2000)),
    (re.compile(r"idrid|messidor|retinal?-?(?:disease|fundus)|\bodir|glaucoma", re.IGNORECASE), (2000, 1500)),
    (re.compile(r"dogs?-?vs-?cats|cats?-?(?:and|vs)-?dogs?|dog-?breed|oxford-?pets?|imagenet(?!te)", re.IGNORECASE), (500, 375)),
    (re.compile(r"flowers?-?102|102-?flowers?|\bcub-?200|stanford-?cars|food-?101", re.IGNORECASE), (600, 500)),
)
# Known sets of small images, and the edge of these.
SMALL_SETS = (
    (re.compile(r"digit-?recogni[sz]er|(?<!skin-cancer-)(?<!skin_cancer_)mnist", re.IGNORECASE), 28),
    (re.compile(r"cifar|aerial-?cactus|has_cactus", re.IGNORECASE), 32),
    (re.compile(r"fer-?2013|facial-?expression-?recognition", re.IGNORECASE), 48),
    (re.compile(r"tiny-?imagenet|eurosat", re.IGNORECASE), 64),
)


@dataclass(frozen=True, eq=False)
class SampleWork:
    """What loading one sample takes. `decodes`: an image file is read; `memory`: the samples lie in memory; `unknown`."""

    kind: Literal["decodes", "memory", "unknown"]
    why: str = ""
    source: ast.AST | None = None
    """The call or class that shows it."""
    edge: int = 0
    """Pixels of an edge, for the small sets that everybody knows."""


@dataclass(frozen=True, eq=False)
class Loader:
    """One `DataLoader(…)`."""

    call: ast.Call
    workers: list[Any]
    batch: int | None
    dataset: ast.expr | None
    work: SampleWork


@remembered
def loaders(program: Program) -> list[Loader]:
    """The DataLoaders of the program, neighbours included, in order."""
    found = []
    for call in program.calls_to("DataLoader", "FastDataLoader", "MultiEpochsDataLoader"):
        if program.name(call).startswith(("torch_geometric", "dgl", "torchtext", "keras")) or program.target(call) is not None:
            continue
        dataset = given(program, call, "dataset", 0)
        workers = argument_values(program, call, "num_workers", 5, 0)
        batch = number(program, given(program, call, "batch_size", 1))
        work = sample_work(program, dataset) if dataset is not None else SampleWork("unknown")
        found.append(Loader(call, workers, int(batch) if batch else None, dataset, work))
    return found


def sample_work(program: Program, dataset: ast.expr, deepest: int = 3) -> SampleWork:
    """What one sample of this dataset takes, by its class, its bases, what it wraps and the transforms it is given."""
    works = [_work_of(program, end, deepest) for end in origins(program, dataset)]
    known = [work for work in works if work.kind != "unknown"]
    if not known:  # what is known of every dataset class holds for this one
        known = [work for owner in dataset_classes(program) if (work := class_work(program, owner)).kind != "unknown"]
        known = known if all(work.kind == "decodes" for work in known) else []
    return next((work for work in known if work.kind == "decodes"), known[-1] if known else SampleWork("unknown"))


def _work_of(program: Program, end: ast.expr, deepest: int) -> SampleWork:
    if not isinstance(end, ast.Call):
        return SampleWork("unknown")
    last = program.last(end)
    target = program.target(end)
    if isinstance(target, ast.ClassDef):
        work = class_work(program, target)
        if work.kind != "unknown":
            return work
    elif last in FOLDER_DATASETS:
        return SampleWork("decodes", f"`{last}` decodes a file", end)
    elif last in MEMORY_DATASETS:
        return SampleWork("memory", f"`{last}` holds its images in memory", end, MEMORY_DATASETS[last])
    arguments = [*end.args, *(word.value for word in end.keywords)]
    for part in arguments if deepest else ():  # a dataset that wraps another one
        if isinstance(part, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            inner = _wrapped(program, part, deepest)
            if inner.kind != "unknown":
                return inner
    if target is None and any(transform_steps(program, part) for part in arguments):
        return SampleWork("decodes", f"`{last}` applies image transforms to each sample", end)
    return SampleWork("unknown")


def _wrapped(program: Program, part: ast.expr, deepest: int) -> SampleWork:
    """What the datasets behind an argument take."""
    for end in origins(program, part):
        target, last = (program.target(end), program.last(end)) if isinstance(end, ast.Call) else (None, "")
        is_set = isinstance(target, ast.ClassDef) and is_dataset(program, target)
        if is_set or last in FOLDER_DATASETS or last in MEMORY_DATASETS or last in ("Subset", "random_split", "ConcatDataset"):
            work = _work_of(program, end, deepest - 1)
            if work.kind != "unknown":
                return work
    return SampleWork("unknown")


@remembered
def class_work(program: Program, owner: ast.ClassDef) -> SampleWork:
    """What a class does per sample: does the code behind `__getitem__` or `__iter__` decode an image?"""
    for name in ("__getitem__", "__iter__", "__next__", "__data_generation", "get_example", "load_image"):
        method = program.method(owner, name)
        for call in program.reached(method) if method is not None else ():
            if is_decode(program, call):
                return SampleWork("decodes", f"`{owner.name}.{name}` calls `{program.text(call.func)}` for each sample", call)
    for base in program.base_names(owner):
        if base in FOLDER_DATASETS:
            return SampleWork("decodes", f"`{owner.name}` is an `{base}`, which decodes a file for each sample", owner)
        if base in MEMORY_DATASETS:
            return SampleWork("memory", f"`{owner.name}` is a `{base}`", owner, MEMORY_DATASETS[base])
    init = program.method(owner, "__init__")
    if init is not None and any(is_decode(program, call) for call in program.reached(init)):
        return SampleWork("memory", f"`{owner.name}.__init__` decodes all images", owner)
    return SampleWork("unknown")


def is_decode(program: Program, call: ast.Call) -> bool:
    """Does this call read an image file?"""
    name = program.name(call)
    last = name.rpartition(".")[2]
    if name in _DECODERS or last in _DECODER_NAMES:
        return True
    return bool(_READS_IMAGE.match(last)) and bool(call.args) and program.target(call) is None


@remembered
def dataset_classes(program: Program) -> list[ast.ClassDef]:
    """Classes with `__getitem__` that are datasets by their bases or their name."""
    return [owner for owners in program.classes.values() for owner in owners if is_dataset(program, owner)]


def is_dataset(program: Program, owner: ast.ClassDef) -> bool:
    if program.method(owner, "__getitem__") is None and program.method(owner, "__iter__") is None:
        return any(base in FOLDER_DATASETS or base in MEMORY_DATASETS for base in program.base_names(owner))
    names = program.base_names(owner)
    return any(name.endswith(("Dataset", "Sequence", "PyDataset")) or name in FOLDER_DATASETS for name in names) or bool(
        re.search(r"dataset|dataloader|generator", owner.name, re.IGNORECASE) and program.method(owner, "__getitem__")
    )


def is_sequence(program: Program, owner: ast.ClassDef) -> bool:
    """A Keras `Sequence` or `PyDataset`."""
    return any(name in ("Sequence", "PyDataset") for name in program.base_names(owner))


# Feeds of a training ------------------------------------------------------------------------------------------------------

FLOWS = frozenset({"flow_from_directory", "flow_from_dataframe", "flow"})
_TF_LOADS = (
    "tensorflow_datasets.load", "tensorflow.data.Dataset.zip", "tensorflow.data.Dataset.load",
    "tensorflow.data.experimental.load",
)  # fmt: skip
TF_DATA = frozenset(
    {"from_tensor_slices", "list_files", "TFRecordDataset", "from_generator", "image_dataset_from_directory", "from_tensors"}
)


@dataclass(frozen=True, eq=False)
class Feed:
    """What a training reads its batches from, and the call that makes it."""

    kind: Literal["loader", "flow", "sequence", "generator", "tf.data"]
    call: ast.Call


def feeds(program: Program, data: ast.expr | None) -> list[Feed]:
    """The sources behind the data of a training; empty for arrays and for what is not known."""
    found = []
    for end in origins(program, data) if data is not None else ():
        if not isinstance(end, ast.Call):
            continue
        last, target = program.last(end), program.target(end)
        if target is None and last.endswith("DataLoader"):
            found.append(Feed("loader", end))
        elif last in FLOWS:
            found.append(Feed("flow", end))
        elif isinstance(target, ast.ClassDef) and is_sequence(program, target):
            found.append(Feed("sequence", end))
        elif isinstance(target, ast.FunctionDef) and any(isinstance(part, ast.Yield) for part in ast.walk(target)):
            found.append(Feed("generator", end))
        elif last in TF_DATA or program.name(end) in _TF_LOADS:
            found.append(Feed("tf.data", end))
    return found


def pipeline(program: Program, data: ast.expr, longest: int = 20) -> list[ast.Call]:
    """The calls of a chain such as `from_tensor_slices(x).map(load).batch(32)`, from its end to its source, names followed."""
    found: list[ast.Call] = []
    todo: list[ast.AST] = [data]
    while todo and len(found) < longest:
        node = todo.pop()
        for end in origins(program, node, through=False) if isinstance(node, ast.expr) else ():
            if isinstance(end, ast.Call) and end not in found:
                found.append(end)
                if isinstance(end.func, ast.Attribute) and end.func.attr not in TF_DATA:
                    todo.append(end.func.value)
    return found


def random_steps(program: Program, data: ast.expr | None) -> list[str]:
    """The names of what changes the images of a training at random: transforms, options of its generator, random maps."""
    calls: list[ast.Call] = []
    names: list[str] = []
    for one in feeds(program, data):
        if one.kind == "loader" and (dataset := given(program, one.call, "dataset", 0)) is not None:
            calls += _calls_of_dataset(program, dataset)
        elif one.kind == "flow" and isinstance(one.call.func, ast.Attribute):
            makers = [end for end in origins(program, one.call.func.value) if isinstance(end, ast.Call)]
            names += [name for maker in makers for name in random_options(program, maker)]
        elif (target := program.target(one.call)) is not None:
            calls += program.reached(target)
    for step in pipeline(program, data) if data is not None else ():
        if program.last(step) == "map" and step.args and (mapped := program.definition(step.args[0])) is not None:
            calls += program.reached(mapped)
    names += [program.last(call) for call in calls if is_random(program, call)]
    return list(dict.fromkeys(names))


def _calls_of_dataset(program: Program, dataset: ast.expr, deepest: int = 3) -> Iterator[ast.Call]:
    """The transforms that a dataset is given, those of the dataset it wraps too, and what its class does per sample."""
    for end in origins(program, dataset):
        if not isinstance(end, ast.Call):
            continue
        for part in (*end.args, *(word.value for word in end.keywords)):
            yield from transform_steps(program, part)
            if deepest and part is not dataset and _wrapped(program, part, deepest).kind != "unknown":
                yield from _calls_of_dataset(program, part, deepest - 1)
        target = program.target(end)
        if isinstance(target, ast.ClassDef):
            yield from program.calls_in(target)
            method = program.method(target, "__getitem__")
            yield from program.reached(method) if method is not None else ()


def is_random(program: Program, call: ast.Call) -> bool:
    name = program.name(call)
    random_draw = name.startswith(("random.random", "random.uniform", "numpy.random.rand", "numpy.random.uniform"))
    return name.rpartition(".")[2] in RANDOM or "image.random_" in name or "image.stateless_random_" in name or random_draw


WARPS = ("rotation_range", "shear_range", "zoom_range", "width_shift_range", "height_shift_range", "channel_shift_range")


def random_options(program: Program, generator: ast.Call) -> list[str]:
    """The options of an `ImageDataGenerator` that change images at random."""
    if program.last(generator) != "ImageDataGenerator":
        return []
    names = (*WARPS, "horizontal_flip", "vertical_flip", "brightness_range")
    return [name for name in names if (expr := given(program, generator, name)) and value(program, expr) not in (0, None, False)]


# Transforms ---------------------------------------------------------------------------------------------------------------


def transform_steps(program: Program, expr: ast.expr) -> list[ast.Call]:
    """The transforms behind an expression in their order: `Compose([...])`, `Sequential`, dictionaries of them, one alone."""
    found: list[ast.Call] = []
    for end in origins(program, expr):
        if isinstance(end, ast.Call):
            last = program.last(end)
            if last in _GROUPS:
                found += list(listed_transforms(program, end))
            elif last in RANDOM or last in SIZING:
                found.append(end)
            elif isinstance(target := program.target(end), ast.ClassDef) and program.method(target, "__call__") is not None:
                inner = [call for call in program.calls_in(target) if program.last(call) == "Compose"]  # a class that holds one
                found += [step for call in inner for step in listed_transforms(program, call)]
        elif isinstance(end, ast.Dict):
            found += [step for item in end.values for step in transform_steps(program, item)]
        elif isinstance(end, ast.Lambda):
            found += [call for call in program.calls_in(end) if program.last(call) in RANDOM]
    return found


_GROUPS = ("Compose", "Sequential", "OneOf", "SomeOf", "RandomApply", "RandomChoice", "ReplayCompose")


def listed_transforms(program: Program, call: ast.Call, deepest: int = 4) -> Iterator[ast.Call]:
    """The calls in the list that a `Compose` is given, those of groups inside it too."""
    first = given(program, call, "transforms", 0)
    lists = [end.elts for end in origins(program, first) if isinstance(end, ast.List | ast.Tuple)] if first is not None else []
    if not lists and program.last(call) == "Sequential":
        lists = [call.args]
    for part in (part for parts in lists[:4] for part in parts):
        named = isinstance(part, ast.Name | ast.Attribute | ast.IfExp)
        for end in origins(program, part, through=False) if named else [part]:
            if isinstance(end, ast.Call):
                yield end
                if deepest and program.last(end) in _GROUPS:
                    yield from listed_transforms(program, end, deepest - 1)


def compositions(program: Program) -> list[ast.Call]:
    """Every `Compose(…)` of image transforms."""
    return [call for call in program.calls_to("Compose") if not isinstance(program.parents.get(call), ast.List)]


def size_of(program: Program, step: ast.Call) -> int | None:
    """The longer edge that a sizing transform gives, in pixels."""
    last = program.last(step)
    if last not in SIZING:
        return None
    for expr in (given(program, step, "size", 0), given(program, step, "height", 0), given(program, step, "max_size", 0)):
        found = value(program, expr) if expr is not None else UNKNOWN
        if isinstance(found, tuple) and found and all(isinstance(one, int) for one in found):
            return int(max(found))
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return None


def edge_of(size: object) -> int:
    """The longer edge of a size; 0 where it is none."""
    fits = isinstance(size, tuple) and len(size) in (2, 3) and all(isinstance(one, int) for one in size)
    return max(size) if fits and isinstance(size, tuple) else 0


@lru_cache(maxsize=8)
def known_size(texts: tuple[str, ...]) -> tuple[int, int] | None:
    """The typical size of the photographs in a set that everybody knows, by a path or a name."""
    for pattern, size in KNOWN_SIZES:
        if any(pattern.search(text) for text in texts):
            return size
    return None


@remembered
def constants(program: Program) -> tuple[str, ...]:
    """The text constants of the file that look like paths or names of sets."""
    texts = [node.value for node in program.order if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return tuple(dict.fromkeys(text for text in texts if 3 < len(text) < 200 and "\n" not in text))


def in_display(program: Program, node: ast.AST) -> bool:
    """Is this in a loop or function that draws pictures? What is done there is done for a handful."""
    blocks = [block for block in (program.loop(node), program.function(node)) if not isinstance(block, ast.Lambda | None)]
    return any(program.last(call) in DRAWS for block in blocks for call in program.calls_in(block))


DRAWS = frozenset({"imshow", "subplot", "subplots", "show_image", "make_grid", "add_subplot", "matshow", "display"})


# What runs per sample -----------------------------------------------------------------------------------------------------

_STEP_METHODS = ("__call__", "forward", "apply")
_SAMPLE_METHODS = ("__getitem__", "__getitems__", "__data_generation", "_load_image", "load_image", "load_sample")
_HANDED = {
    "map": 0, "numpy_function": 0, "py_function": 0, "interleave": 0, "from_generator": 0, "Lambda": 0, "DataLoader": 6,
    "ImageFolder": 3, "DatasetFolder": 1, "ImageDataGenerator": 99, "with_transform": 0, "set_transform": 0, "DataBlock": 99,
}  # fmt: skip
_HANDED_WORDS = (
    "func", "map_func", "collate_fn", "loader", "transform", "preprocessing_function", "generator", "function", "get_x", "get_y",
)  # fmt: skip


@remembered
def sample_functions(program: Program) -> dict[ast.AST, ast.AST]:
    """The functions that run once for each sample, with those they call, each with the first one that led to it."""
    methods: list[tuple[ast.ClassDef, tuple[str, ...]]] = [(owner, _SAMPLE_METHODS) for owner in dataset_classes(program)]
    steps = [step for call in compositions(program) for step in listed_transforms(program, call)]
    methods += [(owner, _STEP_METHODS) for step in steps if isinstance(owner := program.target(step), ast.ClassDef)]
    starts: list[ast.AST] = [one for owner, names in methods for name in names if (one := program.method(owner, name))]
    for call in program.calls_to(*_HANDED):
        receiver, last = call.func.value if isinstance(call.func, ast.Attribute) else None, program.last(call)
        if last == "map" and not (isinstance(receiver, ast.Name | ast.Call) and program.imports_any("tensorflow")):
            continue  # of Python, of a column of pandas, of Hugging Face: runs once
        handed = [word.value for word in call.keywords if word.arg in _HANDED_WORDS] + call.args[_HANDED[last] :][:1]
        starts += [found for part in handed if isinstance(found := program.definition(part), FUNCTIONS)]
    found_by: dict[ast.AST, ast.AST] = {}
    for start in starts:
        found_by.setdefault(start, start)
        for inner in (inner for call in program.reached(start) for inner in program.runs(call)):
            found_by.setdefault(inner, start)
    return found_by


def per_sample(program: Program, expr: ast.AST, deepest: int = 5) -> bool:
    """Does an expression depend on the sample: on a parameter without known callers, or on the variable of a loop?"""
    for name in ast.walk(expr) if deepest else ():
        if not isinstance(name, ast.Name) or name.id in ("self", "cls"):
            continue
        for end in origins(program, name, through=False):
            if isinstance(end, ast.Name):
                if any(binding.how in ("parameter", "element") for binding in program.bound(end)):
                    return True
            elif end is not expr and per_sample(program, end, deepest - 1):
                return True
    return False
