from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from errors import refused
from small_training import CPU, NO_GPU_MEMORY, NO_MEMORY, Shortage, Small, config, small
from unchoke.core.events import Event, Note, ignore
from unchoke.training.network.feeding import HostBatch, feed
from unchoke.training.network.loop_config import LoopContext
from unchoke.training.network.step import MicroBatch, Stepper

BATCH = np.array([4, 31, 7, 12, 0, 22, 19])
KEPT = np.linspace(0.05, 0.9, len(BATCH), dtype=np.float32)
NUM_GLOBAL = 11
ERRORS = {"CUDA": NO_GPU_MEMORY, "CPU": NO_MEMORY, "Python": MemoryError(), "likely": RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")}


def fed(made: Small, *, epoch: int | None = 0, mixed: bool = False, num: int = len(BATCH)) -> HostBatch:
    """The batch and, for mixup, the sample that the last one is mixed with."""
    positions = np.append(BATCH, BATCH[0]) if mixed else BATCH[:num]
    return next(feed(made.source, [positions], epoch=epoch, device=CPU, workers=0))


def stepper(
    made: Small, size: int, *, on_event: Callable[[Event], None] = ignore, batch_norm: str = "frozen", dtype: str = "float32"
) -> Stepper:
    loop = config(batch_size=size, sub_batch=size, dtype=dtype, batch_norm=batch_norm)
    return Stepper(made.network, made.objective, loop, LoopContext(CPU, None, on_event), inputs=made.inputs)


def gradients(made: Small) -> dict[str, torch.Tensor]:
    return {name: one.grad.clone() for name, one in made.network.named_parameters() if one.grad is not None}


def run(
    made: Small, size: int, *, mixed: bool = False, num: int = len(BATCH), **options: Any
) -> tuple[float, dict[str, torch.Tensor], Stepper]:
    """One backward pass: its loss, the gradients, and the stepper afterwards."""
    used = stepper(made, size, **options)
    loss = used.backward(fed(made, mixed=mixed, num=num), NUM_GLOBAL, seed=3, kept=KEPT if mixed else None)
    return float(loss), gradients(made), used


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], *, relative: float = 1e-6) -> None:
    """By norms, beside the whole gradient: a bias whose gradient is nothing but rounding has no digits to agree on."""
    assert list(found) == list(wanted)
    scale = torch.stack([value.norm() for value in wanted.values()]).norm()
    for name, value in wanted.items():
        assert float((found[name] - value).norm()) <= relative * max(float(value.norm()), 0.01 * float(scale)), name


@pytest.mark.parametrize(
    ("name", "size", "mixed"),
    [("test_vit", 1, False), ("test_vit", 3, True), ("test_efficientnet", 2, False), ("test_efficientnet", 100, True)],
)
def test_micro_batches_add_up_to_whole_gradient(name, size, mixed):
    loss, whole, _ = run(small(name, num_inputs=2), 7, mixed=mixed)
    in_parts, found, _ = run(small(name, num_inputs=2), size, mixed=mixed)
    assert in_parts == pytest.approx(loss, rel=1e-6)
    assert_same(found, whole)


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_gradient_of_mean_over_global_batch(kind):
    made, twin = small(kind=kind), small(kind=kind)
    loss, found, _ = run(made, 3)
    twin.network.train()
    x = twin.source.prepare(twin.source.read(BATCH, 0), BATCH, 0)
    losses = twin.objective.losses(twin.network(x), twin.objective.target_rows(BATCH))
    (losses.sum() / NUM_GLOBAL).backward()
    assert loss == pytest.approx(losses.sum().item(), rel=1e-6)
    assert_same(found, gradients(twin))


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_mixup_mixes_inputs_columns_and_targets(kind):
    made, twin = small(kind=kind, num_inputs=2), small(kind=kind, num_inputs=2)
    loss, found, _ = run(made, 3, mixed=True)
    twin.network.train()
    partners, kept = np.roll(BATCH, -1), torch.from_numpy(KEPT)
    own_x, other_x = (twin.source.prepare(twin.source.read(each, 0), each, 0) for each in (BATCH, partners))
    own_in, other_in = (torch.from_numpy(twin.inputs[each]) for each in (BATCH, partners))
    own_y, other_y = (twin.objective.target_rows(each, soft=True) for each in (BATCH, partners))
    x = kept.view(-1, 1, 1, 1) * own_x + (1 - kept.view(-1, 1, 1, 1)) * other_x
    columns = kept[:, None] * own_in + (1 - kept[:, None]) * other_in
    losses = twin.objective.losses(twin.network(x, columns), kept[:, None] * own_y + (1 - kept[:, None]) * other_y)
    (losses.sum() / NUM_GLOBAL).backward()
    assert loss == pytest.approx(losses.sum().item(), rel=1e-5)
    assert_same(found, gradients(twin), relative=1e-5)


def test_no_samples_give_no_gradient_and_no_loss():
    made = small()
    used = stepper(made, 4)
    none = np.empty(0, np.int64)
    nothing = next(feed(made.source, [none], epoch=0, device=CPU, workers=0))
    for kept in (None, np.empty(0, np.float32)):
        assert float(used.backward(nothing, NUM_GLOBAL, seed=0, kept=kept)) == 0.0
    assert gradients(made) == {}


def test_gradients_of_an_earlier_step_are_not_added_to():
    made = small()
    used = stepper(made, 3)
    used.backward(fed(made), NUM_GLOBAL, seed=0)
    once = gradients(made)
    used.backward(fed(made), NUM_GLOBAL, seed=0)
    assert all(torch.equal(value, once[name]) for name, value in gradients(made).items())


@pytest.mark.parametrize(
    ("error", "call", "stage"),
    [("CUDA", 1, "forward"), ("CPU", 2, "backward"), ("Python", 3, "forward"), ("likely", 2, "backward")],
)
def test_oom_at_any_micro_batch_repeats_in_smaller(error, call, stage):
    shortage = Shortage(lambda samples, number: number == call, ERRORS[error], stage)
    events: list[Event] = []
    _, whole, _ = run(small(), 3)
    made = small(shortage=shortage)
    _, found, used = run(made, 3, on_event=events.append)
    assert (used.size.value, used.size.halvings) == (2, 1)
    assert_same(found, whole)
    shown = torch.cat(shortage.shown[-4:])
    assert torch.equal(shown, fed(small()).part(0, len(shown))), "not the same samples, each once"
    assert [len(part) for part in shortage.shown[-4:]] == [2, 2, 2, 1]
    notes = [event.text for event in events if isinstance(event, Note) and event.level == "warning"]
    assert notes == ["out of memory with 3 samples at once: they are run again in micro-batches of 2"]


def test_the_size_that_fits_is_found_and_kept():
    made = small(shortage=Shortage(lambda samples, call: samples > 2))
    _, whole, _ = run(small(), 7)
    _, found, used = run(made, 7)
    assert (used.size.value, used.size.halvings) == (2, 2)
    assert_same(found, whole)
    used.backward(fed(made), NUM_GLOBAL, seed=0)
    assert used.size.halvings == 2, "the next step ran out of memory again"


def test_a_batch_smaller_than_the_parts_is_halved_itself():
    made = small(shortage=Shortage(lambda samples, call: samples > 4))
    _, _, used = run(made, 1000)
    assert (used.size.value, used.size.halvings) == (4, 1)


@functools.cache
def unbroken(mixed):
    return run(small(), 7, mixed=mixed)[:2]


@settings(max_examples=25, deadline=None)
@given(fails=st.sets(st.integers(1, 12), max_size=4), mixed=st.booleans(), backward=st.booleans())
def test_oom_now_and_then_same_gradient(fails, mixed, backward):
    shortage = Shortage(lambda samples, call: samples > 1 and call in fails, NO_MEMORY, "backward" if backward else "forward")
    loss, whole = unbroken(mixed)
    hungry, found, _ = run(small(shortage=shortage), 7, mixed=mixed)
    assert hungry == pytest.approx(loss, rel=1e-6)
    assert_same(found, whole)


@pytest.mark.parametrize("error", ["CUDA", "CPU"])
def test_one_sample_too_large_is_refused(error):
    made = small(shortage=Shortage(lambda samples, call: True, ERRORS[error]))
    with refused("out-of-memory", "20.00 MiB" if error == "CUDA" else "1073741824 bytes", "--grad-ckpt"):
        run(made, 7)


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("3 tiles were given")])
def test_other_errors_pass_through_and_nothing_is_repeated(error):
    shortage = Shortage(lambda samples, call: True, error)
    with pytest.raises(type(error), match=str(error)):
        run(small(shortage=shortage), 7)
    assert shortage.calls == 1


def test_ambiguous_error_of_one_sample_is_not_oom():
    shortage = Shortage(lambda samples, call: True, ERRORS["likely"])
    with pytest.raises(RuntimeError, match="CUBLAS_STATUS_ALLOC_FAILED"):
        run(small(shortage=shortage), 7)
    assert shortage.calls == 4


def test_a_broken_process_group_is_not_tried_again():
    broken = RuntimeError("NCCL error: unhandled cuda error. Cuda failure 2 'out of memory'")
    shortage = Shortage(lambda samples, call: True, broken)
    with pytest.raises(RuntimeError, match="NCCL"):
        run(small(shortage=shortage), 7)
    assert shortage.calls == 1


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_batch_statistics_restored_before_repeat(stage):
    calm, hungry = small("test_efficientnet"), small("test_efficientnet")
    hungry.network.shortage = Shortage(lambda samples, call: call == 2, NO_MEMORY, stage)
    events: list[Event] = []
    _, whole, _ = run(calm, 2, num=6, batch_norm="train")
    begun = {name: value.clone() for name, value in hungry.network.state_dict().items()}
    _, found, used = run(hungry, 4, num=6, batch_norm="train", on_event=events.append)
    assert used.size.value == 2
    assert_same(found, whole)
    for name, value in hungry.network.state_dict().items():
        assert torch.equal(value, calm.network.state_dict()[name]), name
    changed = [name for name, value in begun.items() if not torch.equal(value, hungry.network.state_dict()[name])]
    assert changed
    assert all("running" in name or "num_batches" in name for name in changed)
    assert "batch statistics" in events[-1].text


def test_frozen_batch_statistics_nothing_to_restore():
    made = small("test_efficientnet")
    assert stepper(made, 4, batch_norm="frozen").statistics == []
    assert len(stepper(made, 4, batch_norm="train").statistics) > 0


class Dropping(nn.Module):
    """A suffix that drops at random, as some of timm's networks do unasked."""

    def __init__(self, suffix: nn.Module) -> None:
        super().__init__()
        self.suffix, self.dropout = suffix, nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dropped: torch.Tensor = self.dropout(self.suffix(x))
        return dropped


def test_dropout_follows_step_seed():
    found = {}
    for name, seed, state in (("one", 3, 0), ("again", 3, 77), ("other", 4, 0)):
        made = small()
        made.network.suffix = Dropping(made.network.suffix)
        torch.manual_seed(state)
        stepper(made, 3).backward(fed(made), NUM_GLOBAL, seed=seed)
        found[name] = gradients(made)
    assert all(torch.equal(value, found["again"][name]) for name, value in found["one"].items())
    assert not all(torch.equal(value, found["other"][name]) for name, value in found["one"].items())


@pytest.mark.parametrize("size", [3, 50])
def test_predictions_in_parts_are_those_of_the_whole(size):
    made = small("test_efficientnet", kind="values", num_inputs=2)
    used = stepper(made, 4)
    made.network.eval()
    whole = used.predict(fed(made, epoch=None), MicroBatch(7))
    assert whole.shape == (7, 3)
    np.testing.assert_allclose(used.predict(fed(made, epoch=None), MicroBatch(size)), whole, rtol=1e-5)


def test_prediction_oom_every_output_once():
    made = small()
    used, size = stepper(made, 5), MicroBatch(7)
    made.network.eval()
    whole = used.predict(fed(made, epoch=None), MicroBatch(7))
    made.network.shortage = Shortage(lambda samples, call: samples > 2 or call == 4)
    found = used.predict(fed(made, epoch=None), size)
    np.testing.assert_allclose(found, whole, rtol=1e-5)
    assert (size.value, size.halvings) == (1, 3)
    assert (used.size.value, used.size.halvings) == (5, 0)
    assert gradients(made) == {}


def test_in_bf16_outputs_and_losses_are_still_float32():
    made = small()
    used = stepper(made, 3, dtype="bfloat16")
    assert used.backward(fed(made), NUM_GLOBAL, seed=0).dtype == torch.float32
    assert {value.dtype for value in gradients(made).values()} == {torch.float32}
    assert used.predict(fed(made, epoch=None), MicroBatch(3)).dtype == torch.float32


@pytest.mark.parametrize("mixed", [False, True])
def test_padding_of_batch_does_not_count(mixed):
    made = small(num_inputs=1)
    kept = KEPT if mixed else None
    expected = stepper(made, 16).backward(fed(made, mixed=mixed), NUM_GLOBAL, seed=0, kept=kept)
    plain = gradients(made)
    filled = stepper(made, 16)
    filled.whole = 12
    loss = filled.backward(fed(made, mixed=mixed), NUM_GLOBAL, seed=0, kept=kept)
    torch.testing.assert_close(loss, expected)
    for name, value in gradients(made).items():
        torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-7)


def test_batches_that_run_in_parts_are_not_filled_up():
    shortage = Shortage()
    made = small(shortage=shortage)
    for size in (4, 12):
        used = stepper(made, size)
        used.whole = 12
        used.backward(fed(made), NUM_GLOBAL, seed=0)
    assert [len(x) for x in shortage.shown] == [4, 3, 12]
