"""Augmentation on the CPU that costs more than the rest of the sample.

Commonly reported, unmeasured here: an elastic or grid distortion, or three and more of the dear ones together (perspective,
affine, rotation, blur, CLAHE, RandAugment, colour jitter, noise, rain), take from a few to some tens of milliseconds a picture
on one core, often more than decoding it. An `ImageDataGenerator` that rotates, shears, shifts or zooms does so with SciPy, one
picture after another in Python. The workers then set the pace and the accelerator waits; with few cores, as in most
notebooks, it is the whole of the time.

**Write instead.** Flips, crops and brightness in the loader; the dear part on the batch, where the network runs:

    augment = kornia.augmentation.AugmentationSequential(RandomElasticTransform(p=0.5), RandomAffine(15.0, p=0.5))
    images = augment(images.to(device))

torchvision's `v2` transforms take batches on the device too, and Keras has layers (`RandomRotation`, `RandomZoom`) for inside
the model. On the CPU: crop or shrink before the dear transforms, lower their `p`, and keep those that a score asks for.

**When this is fine.** Where the loader still keeps up: `unchoke profile -- python train.py` says whether the model waits for
data. What is gained depends on the device; on a machine without an accelerator moving it to the batch gains little. A warping
`ImageDataGenerator` is a choke in a notebook, where cores are few; where `fit` has `workers` it is a nit, as it is in a script
and as are pipelines, which workers share out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.devices import CUDA
from unchoke.code.facts.epochs import Feed, keras_feeds
from unchoke.code.facts.loaders import FLOWS
from unchoke.code.facts.origins import is_random
from unchoke.code.facts.per_sample import pipeline_pieces
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="transform",
    title="dear augmentation on the CPU for each sample",
    gain="from milliseconds to tens of milliseconds a sample",
    command="unchoke profile",
    eased_by=("no-workers", "repeated-decode"),
)

_ENOUGH = 3
_WARPS = {
    "rotation_range": "`RandomRotation`",
    "shear_range": "`RandomShear`",
    "zoom_range": "`RandomZoom`",
    "width_shift_range": "`RandomTranslation`",
    "height_shift_range": "`RandomTranslation`",
}
_FAMILIES = {
    name: family
    for family, names in {
        "distortion": "ElasticTransform ElasticTransformation GridDistortion OpticalDistortion PiecewiseAffine Rand2DElastic "
        "Rand2DElasticd Rand3DElastic Rand3DElasticd RandGridDistortion RandGridDistortiond RandomElasticDeformation "
        "ThinPlateSpline ElasticDeformation elastic_transform map_coordinates deform_random_grid deform_grid",
        "perspective": "RandomPerspective Perspective PerspectiveTransform cv2.warpPerspective "
        "torchvision.transforms.functional.perspective",
        "affine": "RandomAffine ShiftScaleRotate Affine RandAffine RandAffined cv2.warpAffine skimage.transform.warp "
        "torchvision.transforms.functional.affine tf.keras.preprocessing.image.random_shear "
        "tf.keras.preprocessing.image.apply_affine_transform",
        "rotation": "RandomRotation Rotate SafeRotate RandRotate RandRotated skimage.transform.rotate "
        "torchvision.transforms.functional.rotate tf.keras.preprocessing.image.random_rotation",
        "blur": "GaussianBlur MotionBlur MedianBlur AdvancedBlur Defocus ZoomBlur GlassBlur RandGaussianSmooth cv2.GaussianBlur "
        "cv2.medianBlur skimage.filters.gaussian torchvision.transforms.functional.gaussian_blur",
        "CLAHE": "CLAHE createCLAHE equalize_adapthist cv2.createCLAHE",
        "automatic policy": "RandAugment AutoAugment TrivialAugmentWide TrivialAugment AugMix rand_augment_transform",
        "colour jitter": "ColorJitter",
        "noise": "ISONoise GaussNoise GaussianNoise AdditiveGaussianNoise RandGaussianNoise MultiplicativeNoise "
        "skimage.util.random_noise",
        "weather": "RandomShadow RandomRain RandomFog RandomSnow RandomSunFlare Rain Fog Snowflakes Clouds",
    }.items()
    for name in names.split()
}
_SCIPY = frozenset({"gaussian_filter", "rotate", "zoom", "affine_transform", "geometric_transform"})
# Not on the CPU sample by sample: batches on the device, layers of a model.
_ELSEWHERE = ("kornia.", "tf.", "keras_cv.", "nvidia.dali.", "torch.nn.", "fastai.")
_PIPELINES = frozenset(
    {"Compose", "Sequential", "OneOf", "SomeOf", "RandomApply", "RandomChoice", "RandomOrder", "ReplayCompose", "Sometimes"}
)
_ONE_OF = frozenset({"OneOf", "RandomChoice"})


def check(program: Program) -> Iterator[Hit]:
    seen: set[ast.Call] = set()
    yield from _generators(program)
    pipelines = [call for call in program.nodes(ast.Call) if _is_pipeline(program, call)]
    for pipeline in pipelines:
        outermost = not any(above in pipelines for above in program.ancestors(pipeline))
        if outermost and not _is_on_device(program, pipeline):
            steps = dict.fromkeys(program.calls_in(pipeline_pieces(program, pipeline)))
            yield from _judged(program, steps, seen, program.targets(pipeline)[-1:])
    for record in program.facts.per_sample:
        calls = list(program.calls_in(program.facts.functions_of(record)))
        made = [program.latest(call.func) for call in calls]  # `self.elastic = …` for `self.elastic(image)`
        makers = [call for call in made if isinstance(call, ast.Call) and not _is_pipeline(program, call)]
        yield from _judged(program, [*calls, *makers], seen, [])


def _generators(program: Program) -> Iterator[Hit]:
    """Generators of Keras that warp, where a `fit` trains on what flows from them."""
    feeds = keras_feeds(program)
    fed = {call for feed in feeds for call in feed.made_of}
    said: set[tuple[str, ...]] = set()
    for call in program.in_order(item for item in fed if program.method(item) == "ImageDataGenerator"):
        given = {name: program.argument(call, name) for name in _WARPS}
        warps = tuple(name for name, node in given.items() if node is not None and program.value(node) not in (0, None))
        if warps and warps not in said:
            said.add(warps)
            from_arrays = any(program.method(item) == "flow" for item in fed)
            source = "give `fit` the arrays themselves" if from_arrays else "read with `image_dataset_from_directory`"
            shared = any(program.argument(feed.fit.call, "workers") for feed in feeds if call in feed.made_of)
            layers = ", ".join(dict.fromkeys(_WARPS[name] for name in warps))
            yield Hit(
                call,
                f"`ImageDataGenerator` with {_listed(warps)} warps each picture with SciPy, in Python, for every sample",
                evidence={"options": list(warps)},
                fix="warp pictures and masks together in tf.data with a parallel `map`: layers would leave the masks as they are"
                if any(call in feed.made_of and _is_paired(program, feed) for feed in feeds)
                else f"put {layers} into the model as layers, which run on the device a batch at a time; {source}. "
                "Until then give `fit` several `workers`",
                kind=None if program.is_notebook and not shared else "nit",
            )


def _is_paired(program: Program, feed: Feed) -> bool:
    """Two flows into one `fit`: pictures and their masks, warped alike by a common seed."""
    return sum(program.method(item) in FLOWS for item in feed.made_of) > 1


def _judged(program: Program, calls: Iterable[ast.Call], seen: set[ast.Call], names: list[str]) -> Iterator[Hit]:
    """One hit for one pipeline, if it has one of the dearest or several families of dear ones."""
    dear = {call: family for call in calls if (family := _family(program, call))}
    if any(call in seen for call in dear):
        return
    alone = [call for call, family in dear.items() if family == "distortion"]
    named = alone or _together(program, dear)
    if not named:
        return
    seen.update(dear)
    shown = list(dict.fromkeys(program.method(call) for call in named))
    first = min(named, key=lambda call: program.index.number[call])
    where = f"`{names[0]}` has" if names else "the pipeline has"
    yield Hit(
        first,
        f"{where} {_listed(shown)} on the CPU, for every sample",
        evidence={"transforms": shown},
        fix=f"apply {_listed(shown)} to the batch on the device (kornia, torchvision v2, layers of the model), or less often",
        kind="nit",
    )


def _together(program: Program, dear: dict[ast.Call, str]) -> list[ast.Call]:
    """Enough of these that one sample meets: options of different `if`s are not added up, a `OneOf` does not count."""
    options = {call: _options(program, call) for call in dear}
    for chosen in options.values():
        met = [call for call in dear if options[call] <= chosen and not _is_one_of(program, call)]
        if len({dear[call] for call in met}) >= _ENOUGH:
            return met
    return []


def _is_one_of(program: Program, call: ast.Call) -> bool:
    """One of several that are drawn from: most samples do not meet it."""
    return any(program.method(above) in _ONE_OF for above in program.ancestors(call))


def _options(program: Program, call: ast.Call) -> frozenset[tuple[ast.If, bool]]:
    """The conditions round a call that are settled before training, each with its branch; a draw in each round is none."""
    tests = [above for above in program.ancestors(call) if isinstance(above, ast.If)]
    unsettled = [node for node in tests if program.value(node.test) is UNKNOWN and not is_random(program, node.test)]
    return frozenset((node, program.index.holds_any(node.body, call)) for node in unsettled)


def _listed(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}" if quoted[1:] else quoted[0]


def _family(program: Program, call: ast.Call) -> str:
    """The kind of dear work this call does or stands for; empty if none."""
    name, method = program.name(call), program.method(call)
    if name in _FAMILIES:
        return _FAMILIES[name]
    if name.startswith(_ELSEWHERE) or program.value(program.argument(call, "p")) == 0:
        return ""
    if name.startswith("scipy.") and method in _SCIPY:
        return f"scipy {method}"
    family = _FAMILIES.get(method, "")
    return family if family == "distortion" or not name.startswith(("?.", "cv2.", "PIL.")) else ""


def _is_pipeline(program: Program, call: ast.Call) -> bool:
    name = program.name(call)
    if name == "torch.nn.Sequential":
        return any(program.name(part).startswith("torchvision.transforms.") for part in program.within(call, ast.Call))
    return program.method(call) in _PIPELINES and not name.startswith(("?.", "kornia.", "tf.", "keras_cv."))


def _is_on_device(program: Program, pipeline: ast.Call) -> bool:
    """Applied to batches: moved to a device, or only ever called elsewhere than for a sample."""
    parent = program.parent(pipeline)
    if isinstance(parent, ast.Attribute) and parent.attr in ("to", CUDA):
        return True
    names = {name.removeprefix("self.") for name in program.targets(pipeline)}
    uses = [node for node in program.nodes(ast.Name, ast.Attribute) if program.written(node).removeprefix("self.") in names]
    read = [node for node in uses if isinstance(node.ctx, ast.Load)]
    called = all(isinstance(call := program.parent(node), ast.Call) and call.func is node for node in read)  # not handed on
    return bool(read) and called and all(program.facts.in_per_sample(node) is None for node in read)
