"""`fit` by several processes: one model, one checkpoint, the training of one process."""

import shutil

import jobs
import torch


def test_four_processes_train_as_one(pool, tmp_path):
    alone = jobs.fitted(None, None, seed=0)
    answers = pool(4, jobs.fitted, str(tmp_path))
    torch.manual_seed(0)
    for history, weights, target, told in answers:
        torch.testing.assert_close(torch.tensor(history), torch.tensor(answers[0][0]), rtol=0, atol=0)
        for name, value in weights.items():
            assert torch.equal(value, answers[0][1][name])
            torch.testing.assert_close(value, alone[1][name], rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(target, alone[2], rtol=1e-2, atol=1e-2)
        assert told in ([], list(range(6)))
    assert [len(told) for *_, told in answers] == [6, 0, 0, 0]
    torch.testing.assert_close(torch.tensor(answers[0][0]), torch.tensor(alone[0]), rtol=2e-2, atol=2e-3)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_batchnorm_and_uneven_data(pool):
    """Every process's statistics are its own in training; the first one's are what all end with."""
    answers = pool(4, jobs.fitted, None, True, 3, None, 203)
    for _, weights, _, _ in answers:
        for name, value in weights.items():
            assert torch.equal(value, answers[0][1][name]), name
    assert answers[0][0][-1][2] > 0.7


def test_training_resumes_by_as_many_bit_for_bit_and_by_others(pool, tmp_path):
    for name in ("whole", "four", "one"):
        (tmp_path / name).mkdir()
    whole = pool(4, jobs.fitted, str(tmp_path / "whole"), False, 6, str(tmp_path / "checkpoint.pt"))[0]
    for name in ("four", "one"):
        shutil.copy(tmp_path / "checkpoint.pt", tmp_path / name)
    for history, weights, target, _ in pool(4, jobs.fitted, str(tmp_path / "four")):
        assert history == whole[0]
        assert torch.equal(target, whole[2])
        assert all(torch.equal(value, whole[1][name]) for name, value in weights.items())
    history, _, target, told = jobs.fitted(None, str(tmp_path / "one"), seed=0)
    assert told == [3, 4, 5]
    assert history[:3] == whole[0][:3]
    torch.testing.assert_close(target, whole[2], rtol=1e-2, atol=1e-2)
