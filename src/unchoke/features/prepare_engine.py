"""Which engine runs a frozen network: compared with plain torch on the user's own photos or patches; and the encoder of photos.

In: a session, a network and a function that gives some inputs for it. Out: an engine whose features may be used. The choice is
written down in the workspace and stands from then on, so that a resumed run computes the very same numbers. So is what an encoder
was (`engines/known.json`): where all features are cached they are named without building a network or an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from unchoke import __version__
from unchoke.core import checksums
from unchoke.core.choices import Choice
from unchoke.core.errors import MachineError, UsageError
from unchoke.core.fingerprint import digest, hash_int
from unchoke.core.settings import Settings
from unchoke.core.units import format_count
from unchoke.features.agree import ASKED_FOR_INT8, USUAL, Candidate, choose_engine
from unchoke.features.cut import NONE, Cut, cut_network, frozen_part
from unchoke.features.encoders import Encoder, EncoderSpec, load_encoder
from unchoke.features.engine_openvino import OPENVINO_BATCH, OpenVinoEngine
from unchoke.features.engines import FrozenEngine, FrozenNetwork, TorchEngine
from unchoke.features.extractor import PictureReader, Read
from unchoke.features.gpu_decoder import choose_decoder
from unchoke.features.recipe import CARD, TWICE, PictureRecipe
from unchoke.features.weights_identity import identify_weights
from unchoke.machine.backend import keep_freed_memory, torch_device
from unchoke.pixels.tile_grid import TilePlan, plan_tiles
from unchoke.runs.session import Session

InputSampler = Callable[[int], NDArray[Any]]
"""Up to so many inputs of a network, from the user's own data."""
_COMPARED = 32
_CALIBRATED = 128
_PLAIN = "torch:f32"
_KNOWN = "known.json"
_AT_ONCE = "at_once.json"
"""How many inputs fit into a device's memory where a batch did not."""


@dataclass(frozen=True)
class EngineRules:
    """How engines are chosen for one kind of network.

    `file` in the workspace keeps the choices. Not every engine computes in every one of the `precisions`. Where `tunable`, what
    `unchoke tune` found is heeded; where not `even_slower`, an engine that nobody named has to be about as fast as torch.
    """

    file: str
    nouns: str
    precisions: Mapping[str, tuple[str, ...]]
    tunable: bool = False
    even_slower: bool = False


OF_PICTURES = EngineRules(
    "choice.json", "features", {"torch": ("f32", "bf16", "f16"), "openvino": ("f32", "bf16", "int8")}, True, even_slower=True
)
OF_PYRAMIDS = EngineRules("pyramid_choice.json", "pyramids", {"torch": ("f32", "bf16", "f16"), "openvino": ("f32", "bf16")})


@dataclass(frozen=True)
class EngineTuning:
    """How an engine is run: inputs at once, batches side by side, and how small files are decoded. None: as the policy says."""

    encode_batch: int | None = None
    engine_streams: int | None = None
    decode_scale: str = TWICE

    def given(self) -> dict[str, Any]:
        """What differs from the usual."""
        return {name: value for name, value in asdict(self).items() if value != getattr(EngineTuning(), name)}


def prepare_engine(
    session: Session,
    network: FrozenNetwork,
    sample: InputSampler,
    *,
    rules: EngineRules,
    shown: str,
    try_decoder: Callable[[FrozenEngine], Choice | None] = lambda _: None,
) -> tuple[FrozenEngine, EngineTuning]:
    """The first of the machine's engines that agrees with float32 torch on `sample`; one chosen before stands.

    `shown` says in words what the sample consists of. `try_decoder` says whether the device may decode files for the engine.
    """
    settings = session.settings
    refuse_unknown_precision(settings, rules)
    session.chose(keep_freed_memory())
    file, key = session.workspace.engines / rules.file, _key(session, network)
    earlier = kept_choice(session, network, rules)
    with checksums.making_sense(file):
        tuning = EngineTuning(**earlier.get("how", {})) if earlier else _tuned(session, rules)
    build = partial(build_engine, session, network, sample=sample, tuning=tuning)
    if earlier:
        try:
            engine = build(earlier["value"])
            session.chose(_as_before(earlier))
            return engine, tuning
        except MachineError as error:
            session.warn(f"the engine chosen earlier, {earlier['value']}, is not available here ({error.what}); choosing again")
    labels = takewhile(lambda label: label != _PLAIN, wanted_labels(session, rules))
    candidates = [
        Candidate(label, partial(build, label), ASKED_FOR_INT8 if label.endswith(":int8") else USUAL) for label in labels
    ]
    even_slower = rules.even_slower or bool(settings.engine or settings.precision)
    engine, choice = choose_engine(build(_PLAIN), candidates, sample(_COMPARED), shown=shown, even_slower=even_slower)
    name, _, precision = str(choice.value).partition(":")
    if settings.engine not in (None, name) or settings.precision not in (None, precision):
        asked = {"--engine": settings.engine, "--precision": settings.precision}
        raise MachineError(  # what is asked for by name is used or refused, never silently replaced
            f"{' '.join(f'{option} {value}' for option, value in asked.items() if value)} cannot be used here",
            code="engine-unusable",
            why=choice.reason,
            try_="leave the option out and let it be chosen",
        )
    decoder = try_decoder(engine)
    if decoder is not None:
        session.chose(decoder)
        tuning = replace(tuning, decode_scale=CARD) if decoder.value == CARD else tuning
    how = {"how": tuning.given()} if rules.tunable else {}
    checksums.save_checked_json(file, {**checksums.recall_json(file, session.warn), key: {**choice.to_dict(), **how}})
    session.chose(choice)
    return engine, tuning


def _as_before(chosen: dict[str, Any]) -> Choice:
    return Choice("engine", chosen["value"], f"chosen when this workspace began: {chosen['reason']}", chosen["evidence"])


def refuse_unknown_precision(settings: Settings, rules: EngineRules) -> None:
    """Refuse numbers that no engine computes, or not the one that is asked for."""
    engine, precision = settings.engine, settings.precision
    able = [name for name, precisions in rules.precisions.items() if precision in precisions]
    if precision is None or engine in able or (able and engine is None):
        return
    if engine and able:
        raise UsageError(
            f"--engine {engine} does not run --precision {precision}",
            code="precision-unsupported",
            why=f"it runs {', '.join(rules.precisions[engine])}",
            try_=f"--precision {precision} alone picks the engine that does",
        )
    known = [name for one in ([engine] if engine else rules.precisions) for name in rules.precisions[one]]
    raise UsageError(
        f"{rules.nouns} are not computed in {precision}" + (f" by {engine}" if engine else ""),
        code="precision-unsupported",
        why=f"there are {', '.join(dict.fromkeys(known))}",
        try_="--precision bf16, or leave it out",
    )


def kept_choice(session: Session, network: FrozenNetwork, rules: EngineRules) -> dict[str, Any] | None:
    """The choice made earlier in this workspace for the same network and wishes; made again where the file is damaged."""
    return checksums.recall_json(session.workspace.engines / rules.file, session.warn).get(_key(session, network))


def _key(session: Session, network: FrozenNetwork) -> str:
    return network.choice_key(_wishes(session))


def _wishes(session: Session) -> list[str | None]:
    return [session.settings.engine, session.settings.precision, session.settings.device]


def _tuned(session: Session, rules: EngineRules) -> EngineTuning:
    """As `unchoke tune` found best, for the engine it found that with; as usual where another one is asked for by name."""
    settings, names = session.settings, ["encode_batch", "decode_scale"]
    if settings.engine or settings.precision or not rules.tunable:
        return EngineTuning()
    names += ["engine_streams"] if settings.workers is None else []
    choices = [choice for name in names if (choice := session.tuned.choice(name)) is not None]
    for choice in choices:
        session.chose(choice)
    return EngineTuning(**{choice.name: choice.value for choice in choices})


def wanted_labels(session: Session, rules: EngineRules) -> list[str]:
    """The policy's candidates, what was tuned first among them, narrowed to the engine and precision asked for."""
    wanted, precisions = session.settings, rules.precisions
    tuned = session.tuned.choice("engine") if rules.tunable else None
    labels = list(dict.fromkeys([*([str(tuned.value)] if tuned else []), *session.policy.engine]))
    labels = [label for label in labels if label.partition(":")[2] in precisions[label.partition(":")[0]]]
    if wanted.precision:
        engines = dict.fromkeys([*(label.partition(":")[0] for label in labels), *precisions])
        labels = [f"{engine}:{wanted.precision}" for engine in engines if wanted.precision in precisions[engine]]
    if wanted.engine:
        of_engine = [label for label in labels if label.startswith(f"{wanted.engine}:")]
        labels = of_engine or [f"{wanted.engine}:{wanted.precision or 'f32'}"]
    return labels


def build_engine(
    session: Session, network: FrozenNetwork, label: str, *, sample: InputSampler, tuning: EngineTuning
) -> FrozenEngine:
    """The engine of that label (``openvino:bf16``), run as `tuning` says."""
    name, _, precision = label.partition(":")
    if name == "openvino":
        return OpenVinoEngine(
            network,
            precision=precision,
            streams=tuning.engine_streams or max(1, session.policy.workers),
            batch=tuning.encode_batch or network.fitting_batch(OPENVINO_BATCH),
            keep_in=session.workspace.engines,
            calibration=sample(_CALIBRATED) if precision == "int8" else None,
            warn=session.warn,
        )
    device, batch = torch_device(session.policy), tuning.encode_batch or network.fitting_batch(session.policy.encode_batch)
    file, key = session.workspace.engines / _AT_ONCE, digest([_key(session, network), str(device), precision])

    def remember(at_once: int) -> None:
        session.warn(f"out of memory on {device}: {network.title} runs {format_count(at_once, 'input')} at once from now on")
        checksums.save_checked_json(file, {**checksums.recall_json(file, session.warn), key: at_once})

    return TorchEngine(
        network,
        device=device,
        precision=precision,
        batch=batch,
        channels_last=session.policy.memory_format == "channels_last",
        at_once=checksums.recall_json(file, session.warn).get(key),
        on_halved=remember,
    )


def sample_inputs(network: FrozenNetwork, item_ids: Iterable[str], read: Read, num: int) -> NDArray[Any]:
    """Up to `num` inputs from the user's items, which are spread by hash; extraction names those that fail."""
    found: list[NDArray[Any]] = []
    for item_id in sorted(item_ids, key=lambda item_id: hash_int("sample", item_id)):
        if len(found) >= num:
            break
        inputs = read(item_id, "")
        found.extend([] if isinstance(inputs, str) else inputs)
    return np.stack(found[:num]) if found else np.empty((0, *network.input_shape), network.input_dtype)


@dataclass(frozen=True, slots=True)
class Picture:
    """What extraction needs to know of a sample."""

    sample_id: str
    path: str
    content: str
    decoded: bool = True
    """Whether its file was decoded before, and found to be sound."""


@dataclass(frozen=True, eq=False)
class PictureTable(Sequence[Picture]):
    """Photos as columns, one entry of each for each photo: ten million as objects take several gigabytes, as columns one."""

    ids: Sequence[str]
    paths: Sequence[str]
    contents: Sequence[str]
    decoded: NDArray[np.bool_]

    @classmethod
    def of(cls, pictures: Sequence[Picture]) -> PictureTable:
        """Any photos as a table."""
        if isinstance(pictures, PictureTable):
            return pictures
        ids, paths = [picture.sample_id for picture in pictures], [picture.path for picture in pictures]
        contents = [picture.content for picture in pictures]
        return cls(ids, paths, contents, np.array([picture.decoded for picture in pictures], dtype=bool))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Picture: ...
    @overload
    def __getitem__(self, place: slice) -> list[Picture]: ...
    def __getitem__(self, place: int | slice) -> Picture | list[Picture]:
        if isinstance(place, int):
            return Picture(self.ids[place], self.paths[place], self.contents[place], bool(self.decoded[place]))
        rows = zip(self.ids[place], self.paths[place], self.contents[place], self.decoded[place].tolist(), strict=True)
        return [Picture(*row) for row in rows]

    def __iter__(self) -> Iterator[Picture]:
        return (Picture(*row) for row in zip(self.ids, self.paths, self.contents, map(bool, self.decoded), strict=True))


@dataclass(frozen=True)
class FrozenEncoder:
    """The whole encoder, where it is cut, how pictures are shown to it, and the engine that runs the part before the cut."""

    encoder: Encoder
    cut: Cut
    tiles: TilePlan
    engine: FrozenEngine
    tuning: EngineTuning = field(default_factory=EngineTuning)

    def recipe(self, num_augmented: int) -> PictureRecipe:
        """How a picture becomes what is cached."""
        engine, scale = self.engine, self.tuning.decode_scale
        named = (engine.name, engine.precision, num_augmented, self.cut.name)
        return PictureRecipe(self.encoder.spec, *named, self.tiles, shape=self.cut.shape, decode_scale=scale)

    def describe(self) -> dict[str, Any]:
        """The engine and how files are decoded for it, for the record and for prediction."""
        return {**self.engine.describe(), "decode_scale": self.tuning.decode_scale}


def open_encoder(session: Session) -> Encoder:
    """The encoder the settings name, with its weights, for inputs of the size they ask for; it may have been loaded meanwhile."""
    settings, start = session.settings, session.prefetch
    if start is not None and (encoder := start.take()) is not None:
        return cast(Encoder, encoder)
    weights = Path(settings.weights) if settings.weights else None
    return load_encoder(settings.encoder, weights=weights, input_px=settings.input_px)


def prepare_encoder(session: Session, pictures: Sequence[Picture]) -> FrozenEncoder:
    """The encoder of photos, cut as the settings say, and the engine for the part before the cut."""
    settings = session.settings
    if settings.cut == NONE:
        raise UsageError(
            "--cut none leaves nothing to extract",
            code="nothing-to-extract",
            why="all of the network trains, from pixels: no part of it is run once and kept",
            try_="unchoke train DATA --cut none, or unchoke extract DATA --cut -4",
        )
    refuse_unknown_precision(settings, OF_PICTURES)
    tiles = plan_tiles(streams=settings.streams, tiles=settings.tiles)
    encoder = open_encoder(session)
    cut = cut_network(encoder, settings.cut)
    if cut.name != settings.cut:
        session.chose(Choice("cut", cut.name, f"timm does not hand out the maps inside {encoder.spec.name}"))
    part = frozen_part(encoder, cut)
    sample = picture_sample(part, pictures, tiles)
    shown = "pictures" if tiles.is_whole else "pictures' tiles"
    paths = {picture.sample_id: picture.path for picture in pictures}
    recipe = PictureRecipe(encoder.spec, "torch", "f32", settings.views, tiles=tiles)
    decoder = partial(choose_decoder, paths, recipe, readers=max(1, session.policy.workers))
    prepared = prepare_engine(session, part, sample, rules=OF_PICTURES, shown=shown, try_decoder=decoder)
    return FrozenEncoder(encoder, cut, tiles, *prepared)


def picture_sample(part: Encoder, pictures: Sequence[Picture], tiles: TilePlan) -> InputSampler:
    """The plain views of some of the user's photos."""
    read = PictureReader(PictureRecipe(part.spec, "torch", "f32", tiles=tiles), {one.sample_id: one.path for one in pictures})
    return partial(sample_inputs, part, [picture.sample_id for picture in pictures], read)


@dataclass(frozen=True)
class KnownEncoder:
    """How pictures became features here before: the recipe, the engine as it described itself, and why it was chosen."""

    recipe: PictureRecipe
    engine: dict[str, Any]
    choice: Choice


def recall_encoder(session: Session) -> KnownEncoder | None:
    """What the settings' encoder was when it last ran here; None where it has not, or where something changed."""
    engines, settings = session.workspace.engines, session.settings
    entry = checksums.recall_json(engines / _KNOWN, session.warn).get(_known_key(session))
    if entry is None:
        return None
    chosen = checksums.recall_json(engines / OF_PICTURES.file, session.warn).get(entry["choice"])
    if chosen is None or [chosen["value"], chosen.get("how", {})] != entry["chosen"]:
        return None
    name, _, precision = chosen["value"].partition(":")
    recipe = PictureRecipe(
        EncoderSpec.from_dict(entry["spec"]),
        name,
        precision,
        settings.views,
        entry["cut"],
        plan_tiles(streams=settings.streams, tiles=settings.tiles),
        shape=tuple(entry["shape"]),
        decode_scale=entry["engine"]["decode_scale"],
    )
    return KnownEncoder(recipe, entry["engine"], _as_before(chosen))


def remember_encoder(session: Session, frozen: FrozenEncoder) -> None:
    """Keep what an encoder that has been prepared is."""
    file, part = session.workspace.engines / _KNOWN, frozen_part(frozen.encoder, frozen.cut)
    chosen = kept_choice(session, part, OF_PICTURES)
    assert chosen is not None, "it was chosen a moment ago"
    entry = {
        "spec": frozen.encoder.spec.to_dict(),
        "cut": frozen.cut.name,
        "shape": list(frozen.cut.shape),
        "engine": frozen.describe(),
        "choice": _key(session, part),
        "chosen": [chosen["value"], chosen.get("how", {})],
    }
    known = checksums.recall_json(file, session.warn)
    if known.get(_known_key(session)) != entry:
        checksums.save_checked_json(file, {**known, _known_key(session): entry})


def _known_key(session: Session) -> str:
    settings = session.settings
    network = [settings.encoder, settings.input_px, settings.cut, settings.streams, settings.tiles]
    return digest([__version__, network, _wishes(session), identify_weights(settings.weights, settings.encoder)])
