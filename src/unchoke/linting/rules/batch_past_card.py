"""A batch that cannot fit on the card that the author names.

Training keeps the activations of every layer until the backward pass has used them, so memory grows with the batch and with the
number of pixels. Where the notebook or script says which card it runs on, the batch, picture size and network it states can be
held against that card. Found here is only what is far past it: at least one and a half times the card's memory by a rough
estimate (a ResNet-50 at 224 px takes about 90 MB a picture in float32, a ViT-B/16 about 130 MB; area scales, mixed precision
halves). Such a run stops with an out-of-memory error in its first step, or, with memory shared with the host, crawls.

**Write instead.** A batch that fits, with gradients added up over several to keep the same step:

    loss = criterion(model(images), targets) / ACCUMULATE
    loss.backward()
    if step % ACCUMULATE == 0:
        optimizer.step(); optimizer.zero_grad()

Mixed precision halves the need, checkpointing trades time for more, and a frozen encoder needs next to nothing. `unchoke
budget` measures what fits instead of estimating it.

**When this is fine.** When the text names a card that the code does not run on, with activations recomputed (checkpointing), or
with a batch shared out among several cards. The estimate knows common networks only and says nothing of others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unchoke.code.facts.freezing import freezes
from unchoke.code.program import Program
from unchoke.linting.rule import Hit, Rule

RULE = Rule(
    group="compute",
    stage="step",
    title="batch far too large for the card that is named",
    kind="nit",
    gain="a run that starts, instead of one that stops out of memory",
    command="unchoke budget",
)
_PAST = 1.5
_PLAIN_PX = 224
# Megabytes of activations for one picture in float32 training, and the side in pixels that this is for. First match counts.
_MEGABYTES: tuple[tuple[str, float, int], ...] = (
    (r"unet\w*.*resnet(?:50|101|152)|unet\w*.*(?:efficientnet|densenet)", 600, 512), (r"unet\w*.*resnet(?:18|34)", 350, 512),
    (r"resne(?:x|s)?t\w*152|resnetv2_152", 190, 224), (r"resne(?:x|s)?t\w*101|resnetv2_101", 140, 224),
    (r"resne(?:x|s)?t\w*50|resnetv2_50", 90, 224), (r"resnet\w*34", 40, 224), (r"resnet\w*18", 25, 224),
    (r"wide_resnet", 130, 224), (r"efficientnet\w*b7", 1700, 600), (r"efficientnet\w*b6", 1000, 528),
    (r"efficientnet\w*b5", 640, 456), (r"efficientnet\w*b4", 350, 380), (r"efficientnet\w*b3", 180, 300),
    (r"efficientnet\w*b2", 115, 260), (r"efficientnet\w*b1", 95, 240), (r"efficientnet\w*b0", 65, 224),
    (r"vit\w*large|vit_l_?16|vitl", 350, 224), (r"vit\w*base\w*patch32|vit_b_?32", 35, 224),
    (r"vit\w*base|vit_b_?16|vitb|deit\w*base", 130, 224), (r"vit\w*small|deit\w*small", 60, 224), (r"swin\w*large", 330, 224),
    (r"swin\w*base|swin_b", 220, 224), (r"swin\w*tiny|swin_t", 110, 224), (r"convnext\w*large", 300, 224),
    (r"convnext\w*base", 200, 224), (r"convnext\w*small", 150, 224), (r"convnext\w*tiny", 90, 224),
    (r"densenet\w*(?:161|169|201)", 180, 224), (r"densenet\w*121", 120, 224), (r"vgg\w*19", 120, 224),
    (r"vgg\w*1[136]", 100, 224), (r"inception_?resnet", 230, 299), (r"xception", 140, 299), (r"inception", 90, 299),
    (r"mobilenet\w*v2", 65, 224), (r"mobilenet", 40, 224),
)  # fmt: skip
_TABLE = [(re.compile(pattern, re.IGNORECASE), megabytes, side) for pattern, megabytes, side in _MEGABYTES]
_MAKERS = (
    "torchvision.models.", "timm.create_model", "tf.keras.applications.", "segmentation_models_pytorch.", "efficientnet_pytorch.",
    "transformers.", "torch.hub.load", "segmentation_models.", "pretrainedmodels.", "torch.nn.", "fastai.",
)  # fmt: skip
_SIZED = frozenset(
    {"Resize", "RandomResizedCrop", "CenterCrop", "RandomCrop", "resize", "LongestMaxSize", "SmallestMaxSize", "RandomSizedCrop",
     "Input", "load_img", "resize_with_pad", "resize_with_crop_or_pad", "image_dataset_from_directory", "flow_from_directory",
     "flow_from_dataframe"}
)  # fmt: skip
_SIZES = ("size", "image_size", "target_size", "input_shape", "img_size", "height")
_SIZE_NAME = re.compile(
    r"^(?:img|image|input|crop|patch|tile|train)?_?(?:size|sz|px|res|resolution|dim|height|width|side|h|w)$|^(?:img|image|imsize|size|crop|patch|tile)$",
    re.IGNORECASE,
)
# Activations are not all kept, or the batch is shared out.
_SPARED = re.compile(
    r"(?i:DataParallel|MirroredStrategy|TPUStrategy|init_process_group|DeepSpeed|FSDP|xmp\.spawn)|checkpoint_sequential"
    r"|gradient_checkpointing|grad_checkpointing|utils\.checkpoint\.checkpoint"
)
_HALF = re.compile(
    r"autocast|GradScaler|mixed_float16|mixed_bfloat16|mixed_precision|fp16=True|bf16=True|16-mixed|precision=16|bfloat16|\.half\(\)|float16",
    re.IGNORECASE,
)
_LEAST_PX, _MOST_PX = 32, 4096
# Largest memory sold under that name, in GB. Longer names first.
_CARDS = {
    "1050 ?ti": 4, "1050": 4, "1060": 6, "1070 ?ti": 8, "1070": 8, "1080 ?ti": 11, "1080": 8, "1630": 4,
    "1650(?: ?ti| ?super)?": 4, "1660(?: ?ti| ?super)?": 6, "2060 ?super": 8, "2060": 12, "2070(?: ?super)?": 8, "2080 ?ti": 11,
    "2080(?: ?super)?": 8, "3050 ?ti": 4, "3050": 8, "3060 ?ti": 8, "3060": 12, "3070(?: ?ti)?": 8, "3080 ?ti": 12, "3080": 12,
    "3090(?: ?ti)?": 24, "4050": 6, "4060 ?ti": 16, "4060": 8, "4070(?: ?ti)?(?: ?super)?": 16, "4080(?: ?super)?": 16,
    "4090": 24, "5060(?: ?ti)?": 16, "5070(?: ?ti)?": 16, "5080": 16, "5090": 32,
}  # fmt: skip
_NAMED = {
    "mx ?1[35]0": 4, "mx ?[23][0-9]0": 4, "mx ?4[0-9]0": 4, "tesla ?t4": 16, r"\bt4\b": 16, "tesla ?k80": 12, r"\bk80\b": 12,
    r"\bp100\b": 16, r"\bv100\b": 32, r"\ba100\b": 80, r"\bh100\b": 80, r"\bh200\b": 141, r"\bl40s?\b": 48, r"\bl4\b": 24,
    r"\ba10g?\b": 24, r"\bp40\b": 24, r"\ba4000\b": 16, r"\ba5000\b": 24, r"\ba6000\b": 48, "jetson nano": 4, "titan ?x": 12,
    "titan ?xp": 12, "titan ?v": 12, "titan ?rtx": 24,
}  # fmt: skip
_GTX = r"(?:gtx|rtx|geforce)\s*-?\s*(?:gtx|rtx)?\s*"
_KNOWN = [(re.compile(_GTX + pattern + r"(?!\d)", re.IGNORECASE), memory) for pattern, memory in _CARDS.items()]
_KNOWN += [(re.compile(pattern, re.IGNORECASE), memory) for pattern, memory in _NAMED.items()]
_GB = r"(?P<gb>\d{1,3}(?:[.,]\d)?)\s?-?(?:GB|GiB|gigs?|G)\b"
_OTHER = r"RAM|disk|SSD|HDD|zip|data|storage|images?|photos?|swap|download|unpacked|on disk"
_NOT_OF_CARD = rf"(?!\s*(?:of\s+)?(?:system\s+|main\s+|cpu\s+|host\s+|ddr\d\s*)?(?:{_OTHER})\b)"
_CARD = r"GPUs?|VRAM|cards?|graphics|video memory|GPU[- ]memory|GPU RAM"
_FIGURE = re.compile(r"[^.;\n]{0,24}?" + _GB + _NOT_OF_CARD, re.IGNORECASE)
_STATED = (
    re.compile(_GB + rf"(?:\s+(?!ram\b|disk\b|zip\b|ssd\b|and\b)[\w-]+){{0,2}}\s+(?:{_CARD})\b", re.IGNORECASE),
    re.compile(_GB + r"\s*(?:of\s+)?(?:VRAM|GPU|video|graphics)\b", re.IGNORECASE),
    re.compile(
        r"\b(?:VRAM|GPU|graphics card|video card|card)(?:\s+memory)?\s*(?:\(|:|=|is|has|with|of|only|,|about|~|\s)*"
        + _GB
        + _NOT_OF_CARD,
        re.IGNORECASE,
    ),
)
_OTHER_CARDS = re.compile(r"\b(?:micro ?)?(?:SD|memory|flash|CF)[- ]cards?\b[^.;\n]*", re.IGNORECASE)
_SETTING = re.compile(r"gpu|tesla|colab|nvidia|kaggle|cuda|vram|\bcards?\b|\d\s?G", re.IGNORECASE)  # `T4` alone may be anything
_WORTH = re.compile(
    r"\d\s?-?g(?:b|ib|igs?)?\b|gtx|rtx|geforce|tesla|titan|jetson|\bmx ?\d|\b[tklpvah]\d{1,4}g?s?\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Network:
    """A network the table knows: the text that named it and its need for one picture of `side` pixels."""

    text: str
    megabytes: float
    side: int


def check(program: Program) -> Iterator[Hit]:
    card = stated_card(program)
    batches, networks = (list(_batches(program)), list(_networks(program))) if card is not None else ([], [])
    if card is None or not batches or not networks:
        return
    network = min(networks, key=lambda one: one.megabytes / one.side**2)
    side = _side(program, network)
    each = network.megabytes * (side / network.side) ** 2
    batch, node = max(batches, key=lambda pair: pair[0])
    limit = _PAST * 1000 * card.gigabytes
    if batch * each < limit or any(freeze.thawed is None for freeze in freezes(program)):
        return
    code = "\n".join(program.text(module) for module in program.nodes(ast.Module))  # without its comments
    half = bool(_HALF.search(code))
    each *= 0.5 if half else 1
    if batch * each >= limit and not _SPARED.search(code):
        yield _hit(card, network, batch, node, side, each, half)


def _hit(card: Card, network: Network, batch: int, node: ast.AST, side: int, each: float, half: bool) -> Hit:
    need = batch * each / 1000
    fits = 1 << max(1, int(0.8 * card.gigabytes * 1000 / each)).bit_length() - 1  # a power of two
    precision = "mixed precision" if half else "float32"
    return Hit(
        node,
        f"{batch} pictures of {side} px through `{network.text}` take about {need:.0f} GB in {precision}; "
        f"the card named here has {card.gigabytes:g} GB",
        evidence={
            "card": card.words,
            "card_gb": card.gigabytes,
            "batch": batch,
            "image_px": side,
            "estimated_gb": round(need, 1),
        },
        fix=f"a batch of about {fits} fits; add up gradients over {max(2, batch // fits)} of them for the same step"
        + ("" if half else ", and turn on mixed precision, which halves the need"),
    )


def _batches(program: Program) -> Iterator[tuple[int, ast.AST]]:
    """Training batch sizes, each with the node that defines it: `BATCH = 128` for `batch_size=BATCH`."""
    given = [(loader.batch, loader.batch_node or loader.call) for loader in program.facts.loaders if loader.role != "eval"]
    for fit in program.facts.fits:
        where, option = (fit.call, "batch_size") if fit.kind == "keras" else (fit.settings, "per_device_train_batch_size")
        node = program.argument(where, option) if where is not None else None
        given += [(program.value(node), node)] if node is not None else []
    for batch, node in given:
        if isinstance(batch, int):
            yield batch, next(iter(program.choices(node).nodes), node)


def _networks(program: Program) -> Iterator[Network]:
    """Networks that are made in the file and that the table knows."""
    for call in program.calls_named(name for name in program.calls_by_name if name.startswith(_MAKERS)):
        given = [program.value(item) for item in (*call.args[:2], *(keyword.value for keyword in call.keywords[:3]))]
        words = [program.method(call), *(item for item in given if isinstance(item, str))]
        texts = [" ".join(words)] if "egmentation" in program.name(call) else words
        yield from [known for text in texts if (known := _known(text)) is not None][:1]


def _known(text: str) -> Network | None:
    plain = text.replace("-", "_").replace("/", "_")
    for pattern, megabytes, side in _TABLE:
        if pattern.search(plain):
            return Network(text.strip(), megabytes, side)
    return None


def _side(program: Program, network: Network) -> int:
    """The smallest side that the code states; else the network's own, but no more than 224."""
    stated = [side for call in program.nodes(ast.Call) for side in _sides_of(program, call)]
    for node in program.nodes(ast.Assign):
        if any(_SIZE_NAME.match(program.written(target).rpartition(".")[2]) for target in node.targets):
            stated += _shorter(program.value(node.value))
    return min((side for side in stated if _LEAST_PX <= side <= _MOST_PX), default=min(network.side, _PLAIN_PX))


def _sides_of(program: Program, call: ast.Call) -> Iterator[int]:
    options = [keyword.value for keyword in call.keywords if keyword.arg in _SIZES]
    if program.method(call) in _SIZED:
        yield from (side for item in (*call.args[:2], *options) for side in _shorter(program.value(item)))
    else:
        values = (program.value(item) for item in options)
        yield from (side for value in values if isinstance(value, tuple) for side in _shorter(value))


def _shorter(value: Any) -> list[int]:
    """The shorter side of `(height, width, channels)`, or of one number; channels are no side."""
    numbers = [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, int) and part > 4]
    return [min(numbers)] if numbers else []


@dataclass(frozen=True)
class Card:
    """`words` is what the author wrote."""

    gigabytes: float
    words: str


def stated_card(program: Program) -> Card | None:
    """The card of the run; of several that are named, the largest."""
    texts = [text for _, text in program.prose]
    texts += [node.value for node in program.nodes(ast.Constant) if isinstance(node.value, str)]
    found = [card for text in texts if _WORTH.search(text) for card in _cards_in(text)]
    return max(found, key=lambda card: card.gigabytes, default=None)


def _cards_in(text: str) -> Iterator[Card]:
    plain = _OTHER_CARDS.sub(" ", re.sub(r"[*_`]+", "", text))
    for name, memory in _KNOWN:
        for found in name.finditer(plain) if _SETTING.search(plain) or not name.pattern.startswith(r"\b") else ():
            figure = _FIGURE.match(plain, found.end())
            if figure is not None and not any(other.search(figure.group()) for other, _ in _KNOWN):
                yield Card(_number(figure), plain[found.start() : figure.end()].strip(" ,;:"))
            else:
                yield Card(memory, found.group().strip())
            break
    for pattern in _STATED:
        yield from (Card(_number(found), found.group().strip()) for found in pattern.finditer(plain))


def _number(found: re.Match[str]) -> float:
    return float(found.group("gb").replace(",", "."))
