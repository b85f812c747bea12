"""Whether a card decodes the user's photos: only if its features agree with those of the CPU's decoder, and only if it is faster.

In: photos by id, how they are shown, and the engine that was chosen. Out: a `Choice` with what was compared, or None where there
is nothing to choose. The choice is kept with the engine's (`prepare_engine.py`), so that a resumed run decodes the same way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from itertools import cycle, islice

import numpy as np

from unchoke.core.choices import Choice
from unchoke.core.fingerprint import hash_int
from unchoke.core.tensors import first_line
from unchoke.features.agree import USUAL, Agreement, compare
from unchoke.features.card_decoder import CardDecoder, EncodedPicture
from unchoke.features.engines import FrozenEngine, TorchEngine
from unchoke.features.extractor import PictureReader
from unchoke.features.reader_source import CardReader
from unchoke.features.recipe import CARD, PictureRecipe
from unchoke.machine.backend import decodes_jpegs, synchronize

_COMPARED = 32
_REACHED = 0.6
"""What many readers reach of so many times one alone."""
_LEAST_SHARE = 0.8
"""Of the photos, for a card to be worth it: the others are decoded by the thread that feeds it."""


def choose_decoder(paths: Mapping[str, str], recipe: PictureRecipe, engine: FrozenEngine, *, readers: int) -> Choice | None:
    """The decoder: the card's ("card") or the CPU's ("cpu").

    None where there is no such card, and for views and tiles, which are cut out of a picture before they are resized.
    """
    plain = recipe.tiles.is_whole and not recipe.num_augmented and recipe.encoder.preprocess.is_plain
    if not (plain and isinstance(engine, TorchEngine) and decodes_jpegs(engine.device)):
        return None
    chosen = sorted(paths, key=lambda item_id: hash_int("sample", item_id))[:_COMPARED]
    files = {one: found for one in chosen if isinstance(found := CardReader(paths)(one, ""), EncodedPicture) and found.for_card}
    if len(files) < max(1, _LEAST_SHARE * len(chosen)):
        return Choice("decoder", "cpu", f"{len(files)} of {len(chosen)} of your pictures are JPEGs that a card decodes")
    read, began_s = PictureReader(recipe, paths), time.perf_counter()
    shown = {one: inputs[0] for one in files if not isinstance(inputs := read(one, ""), str)}
    cpu_rate = readers * len(shown) / (time.perf_counter() - began_s)
    try:
        decoder = CardDecoder(recipe.encoder.preprocess, engine.device)
        decoded, _ = decoder([files[one] for one in shown])  # the first batch loads the library
        batch = list(islice(cycle(files[one] for one in shown), engine.batch))
        decoder(batch)
        began_s = time.perf_counter()
        decoder(batch)
        synchronize(engine.device)
    except (RuntimeError, ImportError) as error:
        return Choice("decoder", "cpu", f"the card does not decode here: {first_line(error)}")
    rate = len(batch) / (time.perf_counter() - began_s)
    truth, features = engine.encode(np.stack(list(shown.values()))), engine.encode(decoded.cpu().numpy())
    return _judged(compare(truth, features), len(shown), rate=rate, cpu_rate=cpu_rate)


def _judged(agreement: Agreement, num: int, *, rate: float, cpu_rate: float) -> Choice:
    figures = {name: round(value, 5) for name, value in asdict(agreement).items()}
    evidence = {**figures, "card_images_per_s": round(rate, 1), "cpu_images_per_s": round(cpu_rate, 1)}
    if not agreement.within(USUAL):
        return Choice("decoder", "cpu", f"the card's disagrees on {num} of your pictures: {agreement.in_words(USUAL)}", evidence)
    if rate < _REACHED * cpu_rate:
        return Choice("decoder", "cpu", f"{rate:,.0f}/s by the card, up to {cpu_rate:,.0f}/s by all readers", evidence)
    agrees = f"agrees with the CPU's on {num} of your pictures ({agreement.in_words(USUAL)})"
    reason = f"{agrees}: {rate:,.0f}/s, against at most {cpu_rate:,.0f}/s"
    return Choice("decoder", CARD, reason, evidence)
