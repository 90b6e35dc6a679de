"""Progress of a run where there is no terminal."""

import io

import torch
from rich.console import Console

from clouds import cloud
from ldmnet import Method, TrainSettings, fit
from ldmnet.networks import mlp
from ldmnet.training.history import Epoch
from ldmnet.training.progress import EpochBar, EpochLines


def lines_of(capsys, watch, epochs, first=0):
    for number in range(first, epochs):
        watch(Epoch(number, 0.1, 0.12341, 0.0012, 0.981))
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def numbers(lines):
    return [int(line.split("epoch ")[1].split("/")[0]) for line in lines]


def test_without_a_terminal_a_run_of_any_length_is_told_in_about_ten_lines(capsys):
    with EpochBar("ldmnet", 300, Console(file=io.StringIO())) as bar:
        lines = lines_of(capsys, bar, 300)
    assert numbers(lines) == [1, *range(30, 301, 30)]
    assert lines[1] == "ldmnet: epoch 30/300 loss 0.1234 + 0.0012 train 98.1 %"
    assert numbers(lines_of(capsys, EpochLines("none", 4), 4)) == [1, 2, 3, 4]
    assert numbers(lines_of(capsys, EpochLines("none", 47), 47)) == [1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 47]
    assert numbers(lines_of(capsys, EpochLines("none", 300), 300, first=207)) == [208, 210, 240, 270, 300]  # resumed


def test_validation_is_told_and_a_penalty_of_nothing_is_not(capsys):
    EpochLines("none", 9)(Epoch(0, 0.1, 0.5, 0.0, 0.75, val_loss=1.0, val_accuracy=0.5))
    assert capsys.readouterr().err == "none: epoch 1/9 loss 0.5000 train 75.0 % val 50.0 %\n"


def test_the_strength_in_force_is_told_beside_the_penalty(capsys):
    EpochLines("ldmnet", 9)(Epoch(0, 0.1, 0.5, 0.25, 0.75, strength=0.0123))
    assert capsys.readouterr().err == "ldmnet: epoch 1/9 loss 0.5000 + 0.2500 (strength 0.012) train 75.0 %\n"


def test_every_update_has_a_line(capsys):
    x, y = cloud(60, 4, seed=0), torch.arange(60) % 2
    settings = TrainSettings(epochs=40, lr=0.01)
    result = fit(mlp(4, 2, (8,)), (x, y), method=Method("ldmnet", mu=0.1, lambda_tilde=0.5), settings=settings)
    lines = [line for line in capsys.readouterr().err.splitlines() if " update: " in line]
    assert numbers(lines) == list(range(1, 41, 2))
    last = result.regularizer.log[-1]
    assert lines[-1] == (
        f"ldmnet: epoch 39/40 update: mu 0.1, penalty {last.penalty:.3g}, move {last.move:.3g}, energy "
        f"{last.energy:.3g}, dimension {last.dimension:.3g}, solve CONVERGED, {sum(last.seconds.values()):.2g} s"
    )
    assert [epoch.update for epoch in result.history[::2]] == [update.scalars() for update in result.regularizer.log]
    assert all(epoch.update is None for epoch in result.history[1::2])


def test_a_terminal_has_the_bar_and_a_quiet_console_nothing(capsys):
    drawn = io.StringIO()
    with EpochBar("ldmnet", 20, Console(file=drawn, force_terminal=True)) as bar:
        assert lines_of(capsys, bar, 20) == []
    assert "20/20" in drawn.getvalue()
    with EpochBar("ldmnet", 20, Console(quiet=True)) as bar:
        assert lines_of(capsys, bar, 20) == []


def test_a_run_that_may_be_short_is_silent_at_first(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ldmnet.training.progress.time.monotonic", lambda: now[0])
    lines = EpochLines("none", 100, after=60)
    assert lines_of(capsys, lines, 33) == []
    now[0] = 61.0
    assert numbers(lines_of(capsys, lines, 100, first=33)) == [34, *range(40, 101, 10)]


def test_fit_tells_of_its_epochs_unless_it_is_asked_not_to(capsys):
    x, y = cloud(20, 4, seed=0), torch.arange(20) % 2
    fit(mlp(4, 2, (8,)), (x, y), settings=TrainSettings(epochs=2))
    assert numbers(capsys.readouterr().err.splitlines()) == [1, 2]
    fit(mlp(4, 2, (8,)), (x, y), settings=TrainSettings(epochs=2), progress=False)
    assert capsys.readouterr() == ("", "")
