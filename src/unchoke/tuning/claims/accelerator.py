"""Claims that need an accelerator: pinned memory for copies to it, and an epoch on it against one on the processor."""

from __future__ import annotations

from unchoke.tuning.claims.claim import DoesNotApply, Measured, percent, possible_gain, spell_s
from unchoke.tuning.claims.claim_bench import Bench
from unchoke.tuning.claims.exactness import as_exact, to_array
from unchoke.tuning.claims.plain_training import NETWORK, Trainer, noise_batch, plain_reader

_STEPS = 4
_COPIES = 8


def measure_pinned_memory(bench: Bench) -> Measured:
    """Copying a batch to the device from ordinary memory against pinned memory."""
    from unchoke.machine.backend import to_device

    batch = noise_batch(bench.batch, bench.sizes.input_px, bench.sizes.input_px)
    try:
        pinned = batch.pin_memory()
    except RuntimeError as error:
        raise DoesNotApply(f"torch cannot pin memory here: {error}") from error

    def copy(pin: bool) -> None:
        for _ in range(_COPIES):
            to_device(pinned if pin else batch, bench.device, non_blocking=pin)

    copies = [to_array(to_device(one, bench.device, non_blocking=True)) for one in (batch, pinned)]
    equal = bool((copies[0] == copies[1]).all())
    compared = bench.compare(lambda: copy(False), lambda: copy(True))
    trainer = Trainer(bench.device)
    trainer.step(batch)
    plain_s, pinned_s = (bench.seconds(lambda pin=pin: copy(pin)) / _COPIES for pin in (False, True))  # type: ignore[misc]
    step_s, pin_s = bench.seconds(lambda: trainer.step(batch)), bench.seconds(batch.pin_memory)
    share, size_bytes = plain_s / step_s, batch.numel() * batch.element_size()
    why = (
        f"copies run at {size_bytes / plain_s / 1e9:.1f} GB/s from ordinary memory and at {size_bytes / pinned_s / 1e9:.1f} GB/s "
        f"from pinned, and pinning a batch takes {spell_s(pin_s)}; the copy is {percent(share)} of a training step, so that "
        f"{possible_gain(share, plain_s / pinned_s):.2f}× of a step can come of it"
    )
    return Measured.of(
        compared,
        equal=equal,
        equal_figure="the same numbers" if equal else "OTHER numbers",
        why=why,
        batch_bytes=size_bytes,
        copy_s={"plain": plain_s, "pinned": pinned_s},
        pin_s=pin_s,
        step_s=step_s,
        device=str(bench.device),
    )


def measure_accelerator(bench: Bench) -> Measured:
    """Training steps on the processor against the same on the accelerator."""
    import torch

    batch = noise_batch(bench.batch, bench.sizes.input_px, bench.sizes.input_px)
    processor, card = Trainer(torch.device("cpu")), Trainer(bench.device)
    equal, equal_figure = as_exact(processor, card, batch)

    def epoch(trainer: Trainer) -> None:
        for _ in range(_STEPS):
            trainer.step(batch)

    compared = bench.compare(lambda: epoch(processor), lambda: epoch(card))
    _, read = plain_reader()
    decode_s = bench.seconds(lambda: [read(path) for path in bench.photos]) / len(bench.photos)
    card_s = bench.seconds(lambda: epoch(card)) / (_STEPS * bench.batch)
    width, height = bench.sizes.photo_px
    why = (
        f"a picture takes {spell_s(card_s)} on {bench.facts.accelerators[0].name} and {spell_s(card_s * compared.ratio)} on "
        f"{bench.facts.cores} cores; decoding one of {width}×{height} takes {spell_s(decode_s)} in one process, so that "
        f"{decode_s / card_s:.0f} of them would keep the device busy"
    )
    return Measured.of(
        compared,
        equal=equal,
        equal_figure=equal_figure,
        why=why,
        picture_s={"accelerator": card_s, "decode": decode_s},
        network=NETWORK,
        batch=bench.batch,
        device=str(bench.device),
    )
