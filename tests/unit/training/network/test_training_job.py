from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from errors import refused
from small_training import CPU, SIZE_PX, after, config, encoder, fingerprint, small
from unchoke.core.errors import Interrupted
from unchoke.core.events import Event, Note, ignore
from unchoke.data.targets import plan_targets
from unchoke.features.cut import cut_network
from unchoke.features.encoders import digest_state, digest_tensors
from unchoke.features.feature_store import ACTIVATIONS, VIEWS, Placement, save_shard
from unchoke.pixels.tile_grid import TilePlan
from unchoke.training.network.photo_job import NetworkSpec, PhotoJob, StoredActivations
from unchoke.training.network.tiled_network import TiledNetwork
from unchoke.training.network.training_job import TrainingJob, kept_peak, run_job

NUM_VIEWS = 3


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    state = encoder("test_vit").module.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, tmp_path / "vit.safetensors")
    return tmp_path / "vit.safetensors"


@pytest.fixture
def job(tmp_path: Path, weights: Path) -> TrainingJob:
    """The small training as a job: its activations in two shards, its samples in another order than in them."""
    made = small("test_vit", cut="-2", views=NUM_VIEWS)
    count = len(made.problem.sample_ids)
    shards = (tmp_path / "0.npz", tmp_path / "1.npz")
    placement = Placement(shards, np.empty(count, np.int32), np.empty(count, np.int32))
    for number, part in enumerate(np.array_split(np.random.default_rng(0).permutation(count), 2)):
        rows = np.stack([made.store.rows(part, view) for view in range(NUM_VIEWS)], axis=1)
        ids = [made.problem.sample_ids[position] for position in part]
        save_shard(shards[number], {ACTIVATIONS: rows[:, 0], VIEWS: rows[:, 1:]}, ids)
        placement.shard_of[part], placement.row_of[part] = number, np.arange(len(part))
    network = NetworkSpec("test_vit", "-2", weights=str(weights), input_px=SIZE_PX)
    return PhotoJob(
        network=network,
        source=StoredActivations(placement, made.store.row_shape, NUM_VIEWS - 1),
        problem=made.problem,
        loop=config(),
        metric=made.metric,
        device="cpu",
        folder=None,
    )


def built(job: TrainingJob) -> TiledNetwork:
    network, _, _ = job.build(CPU)
    assert isinstance(network, TiledNetwork)
    return network


def test_a_job_trains_what_its_parts_say(job):
    assert fingerprint(run_job(job, on_event=ignore)) == fingerprint(small("test_vit", cut="-2", views=NUM_VIEWS).train())


def test_pickled_job_same_bytes(job):
    sent = pickle.loads(pickle.dumps(job))
    torch.manual_seed(99)
    assert fingerprint(run_job(sent, on_event=ignore)) == fingerprint(run_job(job, on_event=ignore))


def test_a_job_goes_on_where_its_folder_says_it_was(job, tmp_path):
    kept = replace(job, folder=tmp_path / "checkpoints", workers=1)
    with pytest.raises(Interrupted):
        run_job(kept, on_event=ignore, stop=after(7))
    done = run_job(kept, on_event=ignore)
    assert done.resumed_step == 7
    assert fingerprint(done) == fingerprint(run_job(job, on_event=ignore))


def test_weights_that_changed_under_a_job_are_refused(job, weights):
    told = replace(job, network=replace(job.network, weights_sha256=digest_state(encoder("test_vit").module)))
    built(told)
    others = {name: value + 1 for name, value in encoder("test_vit").module.state_dict().items()}
    save_file(others, weights)
    with refused("weights-changed", "test_vit"):
        run_job(told, on_event=ignore)


def test_network_start_follows_seed(job):
    begun = [digest_state(built(replace(job, loop=config(seed=seed)))) for seed in (0, 0, 1)]
    assert begun[0] == begun[1] != begun[2]


def test_the_suffix_begins_with_the_pretrained_weights(job):
    network = built(job)
    wanted = cut_network(encoder("test_vit"), "-2", verify=False).suffix
    assert digest_state(network.suffix) == digest_state(wanted)


def test_extra_columns_are_scaled_by_the_train_split_alone(job):
    made = small(num_inputs=2)
    inputs = made.inputs.copy()
    inputs[made.problem.positions("test")] = 1e9
    network = built(replace(job, inputs=inputs))
    train = made.inputs[made.problem.positions("train")]
    np.testing.assert_allclose(network.input_mean.numpy(), train.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(network.input_std.numpy(), train.std(axis=0), rtol=1e-5)


def test_tiles_sums_and_positive_values_reach_the_network(job):
    made = small(kind="values", tiles=TilePlan(2, 1, 2))
    plan = plan_targets(made.problem.names, sums={"total": ("dead", "green")}, positive=True)
    spec = replace(job.network, tiles=TilePlan(2, 1, 2), fusion="film")
    network = built(replace(replace(job, network=spec, targets=plan), problem=made.problem))
    found = network(torch.from_numpy(np.random.default_rng(0).normal(size=(2, *made.store.row_shape))).float())
    assert found.shape == (2, 3)
    assert torch.equal(found[:, 2], found[:, 0] + found[:, 1])
    assert (found > 0).all()


def test_the_threads_of_the_loop_are_the_ones_torch_uses(job):
    seen: list[int] = []

    def stop() -> bool:
        seen.append(torch.get_num_threads())
        return True

    with pytest.raises(Interrupted):
        run_job(replace(job, loop=config(threads=2)), on_event=ignore, stop=stop)
    torch.set_num_threads(1)
    assert seen == [2]


def test_result_independent_of_weights_path(job, tmp_path):
    first = run_job(replace(job, folder=tmp_path / "a"), on_event=ignore)
    second = run_job(replace(job, folder=tmp_path / "b", workers=2, checkpoint_every_s=0.0), on_event=ignore)
    assert digest_tensors(first.state) == digest_tensors(second.state)


def test_peak_is_kept_and_never_lowered(job: TrainingJob, tmp_path: Path) -> None:
    job = replace(job, folder=tmp_path / "checkpoints", limit_bytes=1)
    heard: list[Event] = []
    run_job(job, on_event=heard.append)
    warnings = [event.text for event in heard if isinstance(event, Note) and event.level == "warning"]
    assert len(warnings) == 1 and "--sub-batch" in warnings[0]
    peak = kept_peak(job.folder)
    assert peak is not None and peak > 50_000_000
    run_job(job, on_event=ignore)  # it is finished: only its result is looked at
    assert kept_peak(job.folder) == peak
