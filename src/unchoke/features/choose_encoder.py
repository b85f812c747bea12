"""Which encoder photos are shown to where nobody named one: the strongest at hand that sees all of them within about a minute.

In: a session and how many photos there are. Out: the session with that encoder, and a `Choice` with what was measured. At hand
are weights that are installed or in the model hub's cache, and one small network of the hub where it answers. Nothing is measured
where only the default is at hand, or where the workspace has used it already. Here is the list of `unchoke encoders list`, too.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError
from unchoke.core.events import Note
from unchoke.core.units import format_seconds
from unchoke.features.weights_identity import installed_encoders, is_installed, weights_package
from unchoke.pixels.tile_grid import plan_tiles
from unchoke.runs.report.layout import columns
from unchoke.runs.session import Session

LIMIT_S = 60.0
"""What extraction may take with an encoder that nobody asked for."""
_LARGEST_PX = 224
_FETCHED = "tiny_vit_5m_224"
"""What is fetched from the hub without being asked for: small, and better than the default on every set tried."""
_LOOKS, _ON_CPU, _ON_DEVICE = 2, 4, 64
"""How often a batch is timed, and its size."""
_MORE = 1.3
"""Reading files and writing features take their share, and cores do not add up."""


@dataclass(frozen=True)
class CuratedEncoder:
    """A network worth trying. `repository` is where its weights are on the model hub; "" for those that come as a package."""

    name: str
    million_weights: float
    input_px: int
    licence: str
    reported: str
    repository: str = ""

    @property
    def chosen_px(self) -> int | None:
        """The side of the inputs it is given where it is chosen; None for its own."""
        return _LARGEST_PX if self.input_px > _LARGEST_PX and self.repository else None

    @property
    def is_at_hand(self) -> bool:
        """Whether the weights are installed or in the hub's cache."""
        if package := weights_package(self.name):
            return is_installed(package)
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(self.repository, "model.safetensors"), str)


ENCODERS = (
    CuratedEncoder("tf_efficientnet_lite0", 4.7, 224, "Apache-2.0", "75.1 % top-1"),
    CuratedEncoder("tf_efficientnet_lite2", 6.1, 260, "Apache-2.0", "77.6 % top-1"),
    CuratedEncoder("tiny_vit_5m_224", 5.4, 224, "Apache-2.0", "80.7 % fine-tuned", "timm/tiny_vit_5m_224.dist_in22k"),
    CuratedEncoder("tiny_vit_21m_224", 21.2, 224, "Apache-2.0", "84.8 % fine-tuned", "timm/tiny_vit_21m_224.dist_in22k"),
    CuratedEncoder("convnext_tiny", 28.6, 224, "Apache-2.0", "84.2 % top-1", "timm/convnext_tiny.in12k_ft_in1k"),
    CuratedEncoder("vit_small_patch14_dinov2", 22.1, 518, "Apache-2.0", "81.1 % linear", "timm/vit_small_patch14_dinov2.lvd142m"),
    CuratedEncoder("vit_base_patch14_dinov2", 86.6, 518, "Apache-2.0", "84.5 % linear", "timm/vit_base_patch14_dinov2.lvd142m"),
    CuratedEncoder(
        "vit_base_patch16_siglip_224", 92.9, 224, "Apache-2.0", "78.2 % zero-shot", "timm/vit_base_patch16_siglip_224.v2_webli"
    ),
)
"""From small to large; of those that come from the hub, a later one is taken for the stronger."""


@dataclass(frozen=True)
class EncoderList:
    """The networks, and which of them need no download."""

    encoders: tuple[CuratedEncoder, ...] = ENCODERS
    """The curated networks, smallest first."""

    def to_dict(self) -> dict[str, Any]:
        return {"encoders": [{**asdict(one), "at_hand": one.is_at_hand} for one in self.encoders]}

    def to_text(self) -> str:
        rows = [
            (
                one.name,
                f"{4 * one.million_weights:.0f} MB",
                f"{one.input_px} px",
                one.licence,
                one.reported,
                "here" if one.is_at_hand else "hub" if one.repository else "package",
            )
            for one in self.encoders
        ]
        header = ("encoder", "weights", "input", "licence", "on ImageNet", "from")
        advice = "next    unchoke encoders PHOTOS --encoders tf_efficientnet_lite0,tiny_vit_5m_224, which compares them on yours"
        return f"{columns(rows, header=header, right=(1, 2))}\n\n{advice}"


def list_encoders() -> EncoderList:
    """A few networks worth trying as `--encoder`, from small to large.

    Returns:
        The networks, with licence, size and source.

    Example:
        >>> unchoke.list_encoders().encoders[0].name
        'tf_efficientnet_lite0'
    """
    return EncoderList()


def stronger_encoders() -> list[CuratedEncoder]:
    """Those at hand that answer better than the packaged ones, which do not differ among themselves; from weak to strong."""
    from unchoke.features.encoders import hub_answers

    found = [one for one in ENCODERS if one.repository and one.is_at_hand]
    small = next(one for one in ENCODERS if one.name == _FETCHED)
    return [small, *found] if small not in found and hub_answers() else found


def choose_encoder(session: Session, num_photos: int, *, fetching: bool = True) -> None:
    """Settle the encoder of a session in which nobody named one; what it needs of the hub is fetched, unless told otherwise."""
    if not is_open(session):
        return
    from unchoke.features.encoders import fetch_weights

    settings = session.settings
    default, views = settings.encoder, plan_tiles(streams=settings.streams, tiles=settings.tiles).num_tiles * (1 + settings.views)
    stronger = stronger_encoders()
    if not stronger:
        session.chose(Choice("encoder", default, "none that brings more is at hand", {"num_stronger": 0}))
        return
    with session.stage("encoder", "candidates are timed"):
        picked, images_per_s, beyond = None, dict[str, float](), ""
        for one in stronger:
            each_s = seconds_per_photo(session, one.name, one.chosen_px)
            images_per_s[one.name] = 1 / each_s
            if (needed_s := num_photos * views * each_s) > LIMIT_S:
                beyond = f"; the next stronger one, {one.name}, would take about {format_seconds(needed_s)}"
                break
            try:
                if fetching and not one.is_at_hand:
                    session.on_event(Note(f"fetching {one.name} from the model hub; HF_HUB_OFFLINE=1 keeps to what is here"))
                    fetch_weights(one.name)
            except MachineError as error:
                session.warn(f"{one.name} is left out: {error.what} ({error.why})")
                continue
            picked = one
        name = picked.name if picked else default
        if picked is None:
            images_per_s[default] = 1 / seconds_per_photo(session, default)
        about = f"about {format_seconds(num_photos * views / images_per_s[name])} for {num_photos:,} photos"
        evidence = {"images_per_s": {one: round(rate, 1) for one, rate in images_per_s.items()}, "limit_s": LIMIT_S}
        reason = f"the strongest at hand that takes a minute at most, {about}" if picked else about
        session.chose(Choice("encoder", name, f"{reason}{beyond}", evidence))
    session.use_encoder(name, picked.chosen_px if picked else None)


def is_open(session: Session) -> bool:
    """Whether nobody said which encoder, heads alone are trained on this machine, and the default was not used here before."""
    from unchoke.features.cut import is_all_frozen
    from unchoke.features.prepare_engine import recall_encoder

    settings = session.settings
    alone = settings.on is None and session.part is None and settings.memory is None
    return session.encoder_from == "default" and alone and is_all_frozen(settings.cut) and recall_encoder(session) is None


def other_encoders(session: Session) -> list[tuple[dict[str, Any], float]]:
    """Settings of other encoders at hand, and how many times as long as with the one in force a pass takes; the most promising
    ones first, of those the cheaper. None where one was typed, or is none of the list.
    """
    settings, stronger = session.settings, stronger_encoders()
    packaged = [CuratedEncoder(name, 0, 0, "", "") for name in installed_encoders()]
    known = {one.name: one.chosen_px for one in [*stronger, *packaged]}
    in_force = settings.encoder, settings.input_px
    if session.encoder_from == "typed" or settings.weights or in_force not in known.items():
        return []
    own_s = seconds_per_photo(session, *in_force)
    costs = {name: seconds_per_photo(session, name, px) / own_s for name, px in known.items() if name != settings.encoder}
    return [({"encoder": name, "input_px": known[name]}, cost) for name, cost in costs.items()]


def seconds_per_photo(session: Session, name: str, input_px: int | None = None) -> float:
    """What one photo takes in the network, all cores at work; reading files goes on beside it."""
    policy = session.policy
    low = policy.engine[0].endswith(":bf16")
    return _seconds_per_photo(name, input_px, policy.device, "bfloat16" if low else policy.dtype, max(1, policy.workers))


@lru_cache
def _seconds_per_photo(name: str, input_px: int | None, device_name: str, dtype: str, cores: int) -> float:
    """On a CPU the processor time of one core over their number, which another program's load does not change."""
    import torch

    from unchoke.features.encoders import bare_encoder
    from unchoke.machine.backend import autocast, is_cpu, one_thread, synchronize, torch_device, torch_dtype

    encoder, device = bare_encoder(name, input_px=input_px), torch_device(device_name)
    cpu, size_px = is_cpu(device), encoder.spec.preprocess.size_px
    module = encoder.module.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    pixels = torch.rand(_ON_CPU if cpu else _ON_DEVICE, 3, size_px, size_px, device=device)
    pixels = pixels.to(memory_format=torch.channels_last)
    clock, best_s = time.thread_time if cpu else time.perf_counter, float("inf")
    with one_thread(), torch.inference_mode(), autocast(device, torch_dtype(dtype)):
        module(pixels[:1] if cpu else pixels)
        for _ in range(_LOOKS):
            synchronize(device)
            began_s = clock()
            module(pixels)
            synchronize(device)
            best_s = min(best_s, clock() - began_s)
    return _MORE * best_s / len(pixels) / (cores if cpu else 1)
