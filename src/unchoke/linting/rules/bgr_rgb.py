"""Blue and red swapped between OpenCV and everything else.

`cv2.imread`, `cv2.imdecode`, `cv2.VideoCapture` and `TurboJPEG().decode` give blue, green, red. Pillow, torchvision, ImageNet's
mean and deviation, pretrained networks, albumentations' defaults, matplotlib and Keras expect red, green, blue; `cv2.imwrite`
expects the opposite. Nothing fails: the run trains on wrong colours, and a pretrained network loses accuracy that no tuning
brings back. What is lost is accuracy rather than time, and the runs that were made before it was seen.

**Write instead.** Settle the order once, where the file is read:

    image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)

`image[..., ::-1]` does the same as a view (torch wants a copy of it); PyTurboJPEG takes `pixel_format=TJPF_RGB`; OpenCV from
4.10 has `cv2.IMREAD_COLOR_RGB`. Before `cv2.imwrite`, turn it back with `cv2.COLOR_RGB2BGR`.

**When this is fine.** Greyscale reads; pictures that stay within OpenCV (read, resized, written); a network trained from
scratch on pictures that are always read this way, as long as it is also used so. Masks and depth maps have no colours to swap.
Always a nit: which other reads it must agree with is not told by one file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from unchoke.code.facts.flow import NONE, Flow, Marks
from unchoke.code.facts.networks import is_network_made
from unchoke.code.facts.per_sample import pipeline_pieces
from unchoke.code.facts.vocabulary import words
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="input",
    stage="decode",
    title="BGR pixels used as RGB",
    kind="nit",
    gain="no speed: the accuracy lost to swapped colours",
)

_BGR, _RGB, _PERHAPS, _TRANSFORM = "bgr", "rgb", "perhaps rgb", "transform"
_READ_OR_WRITTEN = frozenset({"cv2.imread", "cv2.imdecode", "cv2.VideoCapture", "cv2.imwrite", "turbojpeg.TurboJPEG"})
_MEAN, _TOLERANCE = (0.485, 0.456, 0.406), 0.002
_COLOUR_FLAGS = frozenset({"IMREAD_COLOR", "IMREAD_COLOR_BGR", "CV_LOAD_IMAGE_COLOR"})
_RGB_READERS = frozenset(
    {"PIL.Image.open", "imageio.imread", "skimage.io.imread", "matplotlib.pyplot.imread", "matplotlib.image.imread",
     "tf.keras.preprocessing.image.load_img", "tf.keras.utils.load_img"}
)  # fmt: skip
_ALBUMENTATIONS = ("ToTensorV2", "albumentations.Normalize")
_PIPELINES = ("Compose", "Sequential", "Normalize", "ToTensor", "ToTensorV2")
_TRANSFORM_WORDS = frozenset({"transform", "transforms", "tfm", "tfms", "aug", "augment", "preprocess", "tf"})
_MODES = ("as_gray", "mode", "color_mode", "grayscale")
_WEIGHTS = ("weights", "encoder_weights", "pretrained")
_WHOLE = ("fit", "predict", "predict_on_batch", "train_on_batch", "evaluate")
_NO_COLOURS = frozenset(
    {"mask", "masks", "label", "labels", "seg", "annotation", "gray", "grey", "depth", "alpha", "edges", "edge", "heat",
     "heatmap", "binary", "gt"}
)  # fmt: skip
_DIRECTORY_READERS = frozenset({"flow_from_directory", "flow_from_dataframe", "image_dataset_from_directory", "ImageFolder"})


def check(program: Program) -> Iterator[Hit]:
    means = program.nodes(ast.List, ast.Tuple) if program.calls_named(_READ_OR_WRITTEN) else None
    if means is not None and not any(_is_mean(program, node, _MEAN[::-1]) for node in means):  # reversed: the author knows
        colours = _Colours(program)
        yield from _used_as_rgb(program, colours)
        yield from _written_as_bgr(program, colours)


def _used_as_rgb(program: Program, colours: _Colours) -> Iterator[Hit]:
    found: dict[ast.Call, str] = {}
    for marks, use in _uses(program, colours):
        for kind, source in sorted(marks, key=lambda mark: program.index.number[mark[1]]):
            if kind == _BGR and isinstance(source, ast.Call):
                found.setdefault(source, use)
    for source, use in found.items():
        read = program.text(source.func)
        yield Hit(
            source,
            f"`{read}` gives blue, green, red; {use} takes it for red, green, blue",
            evidence={"read": read, "used by": use},
            fix=f"turn it round where it is read: `{_turned(program, source)}`",
            fact=f"{read} {use}",
        )


def _turned(program: Program, source: ast.Call) -> str:
    if program.method(source) == "decode":
        return f"{program.text(source)[:-1]}, pixel_format=TJPF_RGB)"
    if program.method(source) == "read":
        frame = (program.targets(source) or ["frame"])[-1]
        return f"{frame} = cv2.cvtColor({frame}, cv2.COLOR_BGR2RGB)"
    return f"cv2.cvtColor({program.text(source)}, cv2.COLOR_BGR2RGB)"


def _written_as_bgr(program: Program, colours: _Colours) -> Iterator[Hit]:
    """Pictures in red, green, blue; what may as well be grey only where no name about it says mask, label or grey."""
    for call in program.calls_named(["cv2.imwrite"]):
        pixels = program.argument(call, "img", 1)
        marks = colours.ask(pixels)
        kinds = {kind for kind, _ in marks}
        if pixels is None or _BGR in kinds or not kinds & {_RGB, _PERHAPS}:
            continue
        text = program.text(pixels)
        names = [text, *(program.text(program.statement(source) or source) for _, source in marks)]
        if _RGB in kinds or not any(_NO_COLOURS & set(words(name)) for name in names):
            yield Hit(
                call,
                f"`cv2.imwrite` takes blue, green, red; `{text}` is red, green, blue",
                evidence={"written": text},
                fix=f"`cv2.cvtColor({text}, cv2.COLOR_RGB2BGR)` before writing",
            )


def _uses(program: Program, colours: _Colours) -> Iterator[tuple[Marks, str]]:
    """What takes a picture for red, green, blue: its marks, and what it is in words."""
    for call in program.nodes(ast.Call):
        use = colours.use_of(call)
        if use:
            yield colours.given(call), use
    for node in program.nodes(ast.BinOp):
        given = (program.latest(node.right) or node.right) if isinstance(node.op, ast.Sub) else None
        if given is not None and any(_is_mean(program, part, _MEAN) for part in program.within(given, ast.expr)):
            yield colours.ask(node.left), "ImageNet's mean and deviation"
    if colours.pretrained:
        for record in program.facts.per_sample:
            yield colours.returned(record.function), f"the pretrained `{colours.pretrained}`"


class _Colours(Flow):
    """Where channel order comes from and where it changes."""

    def judged(self, call: ast.Call, /) -> Marks | None:
        name, method = self.program.name(call), self.program.method(call)
        if self._reads_bgr(call, name, method):
            return frozenset({(_BGR, call)})
        if method == "cvtColor":
            return self._converted(call)
        if method == "flip" and not name.startswith("cv2."):
            axis = self.program.value(self.program.argument(call, "axis", 1))
            marks = self.receiver(call) | self.given(call)
            return _swapped(marks, call) if axis in (-1, 2, (2,), (-1,)) else marks
        if method in _PIPELINES:
            return self._pipeline(call)
        return self._rgb(call, name, method)

    def _rgb(self, call: ast.Call, name: str, method: str) -> Marks | None:
        if name in _RGB_READERS:
            return NONE if any(self.program.keyword(call, option) for option in _MODES) else frozenset({(_PERHAPS, call)})
        if method == "convert" and call.args:
            kept = frozenset(mark for mark in self.receiver(call) if mark[0] == _BGR)
            return NONE if self.program.value(call.args[0]) != "RGB" else kept or frozenset({(_RGB, call)})
        image = self.program.keyword(call, "image")
        return self.ask(image.value) if image is not None else None

    def subscript(self, node: ast.Subscript, /) -> Marks:
        """`[..., ::-1]`, `[:, :, ::-1]`, `[..., [2, 1, 0]]` turn the order round; one channel has none."""
        base, parts = self.ask(node.value), node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not base or not parts:
            return base
        last = parts[-1]
        on_channels = len(parts) >= 3 or (isinstance(parts[0], ast.Constant) and parts[0].value is Ellipsis)
        turned = isinstance(last, ast.Slice) and self.program.value(last.step) == -1
        if self.program.value(last) == (2, 1, 0) or (on_channels and turned):
            return _swapped(base, node)
        if on_channels and isinstance(last, ast.Constant):
            return NONE
        return NONE if turned and len(parts) == 1 else base  # channels first, turned round

    def _reads_bgr(self, call: ast.Call, name: str, method: str) -> bool:
        program = self.program
        if name in ("cv2.imread", "cv2.imdecode"):
            flags = program.argument(call, "flags", 1)
            parts = program.within(flags, ast.Name, ast.Attribute) if flags is not None else ()
            return flags is None or program.value(flags) == 1 or any(program.method(part) in _COLOUR_FLAGS for part in parts)
        if method == "decode" and program.made_by(program.receiver(call)).endswith("TurboJPEG"):
            asked = program.argument(call, "pixel_format", 1)
            return asked is None or "BGR" in program.text(asked)
        return method in ("read", "retrieve") and program.made_by(program.receiver(call)) == "cv2.VideoCapture"

    def _converted(self, call: ast.Call) -> Marks:
        code = self.program.argument(call, "code", 1)
        text = self.program.text(self.program.latest(code) or code) if code is not None else ""
        given = call.args[0] if call.args else None
        marks = self.receiver(call) | self.given(call)
        unknown = not marks and any(bound.how == "handed" for bound in self.program.reaching(given)) if given else True
        has_rgb = unknown or any(kind == _RGB for kind, _ in marks)  # of an argument the two conversions are one
        return frozenset({(_RGB, call)}) if text.endswith("BGR2RGB") and not has_rgb else NONE

    def _pipeline(self, call: ast.Call) -> Marks | None:
        """A transform that expects red, green, blue, unless a step of it turns the order round."""
        pieces = pipeline_pieces(self.program, call)
        if any(self._turns(piece) for piece in pieces):
            return NONE
        steps = [self.program.name(part) for part in self.program.calls_in(pieces)]
        known = any(step.startswith("torchvision.") or step.endswith(_ALBUMENTATIONS) for step in steps)
        return frozenset({(_TRANSFORM, call)}) if known else None

    def _turns(self, piece: ast.AST) -> bool:
        parts = self.program.within(piece, ast.Lambda, ast.Name, ast.Attribute, ast.Call)
        functions = [function for part in parts if (function := self.program.callable_of(part)) is not None]
        return any(re.search(r"cvtColor|::-1\]|\[2, 1, 0\]|flip\(", self.program.text(function)) for function in functions)

    def use_of(self, call: ast.Call) -> str:
        """In words, what takes the arguments of this call for red, green, blue; empty if nothing does."""
        program = self.program
        name, method = program.name(call), program.method(call)
        if name == "PIL.Image.fromarray":
            return "`Image.fromarray`"
        if method == "imshow" and name != "cv2.imshow" and isinstance(call.func, ast.Attribute):
            return f"`{program.text(call.func)}`"
        if method == "preprocess_input" and (name.startswith("tf.keras.") or name == "preprocess_input"):
            return "`preprocess_input`"
        if name.startswith(("torchvision.transforms.functional.", "torchvision.transforms.v2.functional.")):
            return f"`{method}`"
        if self._may_transform(call, name) and any(kind == _TRANSFORM for kind, _ in self.ask(call.func)):
            return f"the transform `{program.text(call.func)}`" if program.written(call.func) else "the transform"
        if "from_pretrained" in program.made_by(call.func) and method not in ("from_pretrained", "save_pretrained"):
            return f"the pretrained `{program.text(call.func)}`"
        whole = method in _WHOLE and isinstance(call.func, ast.Attribute)
        if self.pretrained and (whole or program.facts.is_forward(call)):
            return f"the pretrained `{self.pretrained}`"
        trained = method.startswith("predict") and program.calls_to(*_DIRECTORY_READERS)
        return "a network trained on red, green, blue" if trained else ""

    def _may_transform(self, call: ast.Call, name: str) -> bool:
        """Is it called by a name that a pipeline was given, or that says so? Whatever else is called need not be followed."""
        if "." in name and not name.startswith("?."):
            return False
        last = self.program.written(call.func).rpartition(".")[2]
        return not last or last in self._pipelines or bool(_TRANSFORM_WORDS & set(words(last)))

    @cached_property
    def _pipelines(self) -> set[str]:
        made = self.program.calls_to(*_PIPELINES)
        return {name.rpartition(".")[2] for call in made for name in self.program.targets(call)}

    @cached_property
    def pretrained(self) -> str:
        """The name of a network of this file that comes with weights trained on red, green, blue."""
        calls = (call for call in self.program.nodes(ast.Call) if _is_pretrained(self.program, call))
        return next((self.program.method(call) or "network" for call in calls), "")


def _is_pretrained(program: Program, call: ast.Call) -> bool:
    name = program.name(call)
    given = next((word.value for option in _WEIGHTS if (word := program.keyword(call, option)) is not None), None)
    if name.startswith(("tf.keras.applications.", "segmentation_models_pytorch.")):
        makes = is_network_made(name) and program.method(call)[:1].isupper()
        return makes and (given is None or program.value(given) == "imagenet")
    if name.startswith("torchvision.models.") or name == "timm.create_model":
        if given is not None:
            return program.value(given) not in (None, False)
        given = program.argument(call, "pretrained", 1 if name == "timm.create_model" else 0)
        return given is not None and (program.value(given) is True or "Weights" in program.text(given))
    if program.value(program.argument(call, "pretrained")) is True:
        return True
    return name.endswith(".from_pretrained") and name.startswith(("transformers.", "efficientnet_pytorch."))


def _swapped(marks: Marks, node: ast.AST) -> Marks:
    return frozenset({(_RGB, node)}) if any(kind == _BGR for kind, _ in marks) else NONE


def _is_mean(program: Program, node: ast.expr, mean: tuple[float, ...]) -> bool:
    """Are these, of 1 or of 255, the three numbers?"""
    found = program.value(node) if len(getattr(node, "elts", _MEAN)) == len(_MEAN) else None
    if not isinstance(found, tuple) or len(found) != len(_MEAN) or not all(isinstance(item, int | float) for item in found):
        return False
    scale = 255.0 if max(found) > 1 else 1.0
    return all(abs(given / scale - wanted) < _TOLERANCE for given, wanted in zip(found, mean, strict=True))
