"""Saved without a word to other processes, loaded into any number of them, bit for bit."""

import jobs
import pytest
import torch

from ldmnet.distributed import Sharing

HALF = Sharing(timeout=30, precision="half")
MACHINE = Sharing(timeout=30, store="machine")


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (4, 2), (1, 2)])
def test_a_state_loads_into_any_number_of_processes(pool, before, after, tmp_path):
    answers = pool(before, jobs.saved)
    state, target = answers[0]
    for theirs, their_target in answers:  # any process may save it
        assert torch.equal(their_target, target)
        assert torch.equal(theirs["target"], target)
    torch.save(state, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    [(_, expected, mu)] = pool(1, jobs.resumed, state)
    for loaded, stepped, their_mu in pool(after, jobs.resumed, state):
        assert torch.equal(loaded, target)
        torch.testing.assert_close(stepped, expected, rtol=1e-4, atol=1e-4)
        assert abs(their_mu / mu - 1) < 0.02


def test_torchs_own_distributed_checkpoint_holds_it(pool, tmp_path):
    from torch.distributed import checkpoint

    [(state, target)] = pool(1, jobs.saved)
    checkpoint.save({"regularizer": state}, checkpoint_id=tmp_path, no_dist=True)
    empty = {"regularizer": {**state, "target": torch.zeros_like(state["target"])}}
    checkpoint.load(empty, checkpoint_id=tmp_path, no_dist=True)
    for loaded, *_ in pool(2, jobs.resumed, empty["regularizer"]):
        assert torch.equal(loaded, target)


def test_targets_once_per_machine_are_the_same(pool):
    plain = pool(2, jobs.saved)[0][1]
    for state, target in pool(2, jobs.saved, MACHINE):
        assert torch.equal(target, plain)
        assert torch.equal(state["target"], plain)
    for loaded, *_ in pool(3, jobs.resumed, state, MACHINE):
        assert torch.equal(loaded, plain)


def test_two_machines_of_one_name_are_told_not_waited_for(pool):
    first, second = pool(2, jobs.unmapped)
    assert "cannot be mapped (unable to open file). Do two machines have one host name?" in second
    assert first == f"process 1 of 2: {second}"


def test_targets_in_half_precision(pool):
    plain = pool(2, jobs.saved)[0][1]
    answers = pool(2, jobs.saved, HALF)
    for state, target in answers:
        assert state["target"].dtype == torch.float16
        assert target.dtype == torch.float32
        torch.testing.assert_close(target, plain, rtol=2e-3, atol=2e-3)
    for loaded, *_ in pool(1, jobs.resumed, state) + pool(3, jobs.resumed, state, HALF):
        assert torch.equal(loaded, target)
