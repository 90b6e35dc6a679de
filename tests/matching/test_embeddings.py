import io

import numpy as np
import pytest
import torch
from made_up import people_table
from rich.console import Console
from torch import nn

from ldmnet.errors import InputError
from ldmnet.matching import EmbeddingSettings, extract, face_training, identify, learn, low_rank_map, open_set, pca
from ldmnet.matching.triplet import balanced_batches, triplet_loss
from ldmnet.training import Method

METHODS = {
    "none": Method(),
    "weight_decay": Method("weight_decay", weight_decay_w=5e-4),
    "dropout": Method("dropout", dropout=0.5),
    "control": Method("control", mu=1.0),
    "ldmnet": Method("ldmnet", mu=1.0, lambda_tilde=5.0),
}


def small(kind="network", **more):
    return EmbeddingSettings(kind, train=face_training(30), width=40, steps=30, **more)


def rank1(table, fold, settings, seed=0):
    x = table.prepared(fold.train)
    learned = learn(x[fold.train], table.identity[fold.train], settings, seed=seed)
    assert learned.diverged == ""
    embedded = learned.embed(x)
    return identify(
        embedded[fold.probe], table.identity[fold.probe], embedded[fold.gallery], table.identity[fold.gallery]
    ).rank1


def test_the_papers_schedule():
    train = face_training()
    assert (train.epochs, train.batch_size, train.lr_at(0)) == (200, 100, 0.1)
    assert train.lr_at(199) == pytest.approx(0.1 * 0.99**199)


@pytest.mark.parametrize("name", METHODS)
def test_a_network_learns_to_match_people_it_has_not_seen(name):
    table = people_table(people=30, images=4, d=8, noise=0.02)
    fold = open_set(table, 1)[0]
    assert rank1(table, fold, small(method=METHODS[name])) > rank1(table, fold, EmbeddingSettings("pca"))


@pytest.mark.parametrize("kind", ["triplet", "low_rank", "network", "pca"])
def test_the_same_seed_gives_the_same_features(kind):
    table = people_table()
    settings = EmbeddingSettings(kind, train=face_training(3), width=16, steps=3)
    first, again = (learn(table.x, table.identity, settings, seed=3).embed(table.x) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape[0] == len(table.x)


def test_triplets_need_two_people_with_two_images(says):
    with says(InputError):
        next(balanced_batches(torch.tensor([0, 0, 1, 2]), 4, torch.Generator()))


def test_triplets_that_meet_the_margin_give_no_gradient():
    angle = torch.tensor([0.0, 0.01, 3.1, 3.11])
    x = torch.stack([angle.cos(), angle.sin()], 1).requires_grad_()
    who = torch.tensor([0, 0, 1, 1])
    loss, met = triplet_loss(x, who, 0.5)
    loss.backward()
    assert (loss.item(), met) == (0, 1)
    assert not x.grad.any()
    loss, met = triplet_loss(x, torch.tensor([0, 1, 1, 0]), 0.5)
    assert loss.item() > 0.5
    assert met == 0


def test_the_triplet_loss_is_the_mean_over_broken_triplets():
    x = torch.nn.functional.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    who = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    excess = [
        0.3 + float((x[a] - x[p]).square().sum() - (x[a] - x[n]).square().sum())
        for a in range(9)
        for p in range(9)
        for n in range(9)
        if a != p and who[a] == who[p] and who[a] != who[n]
    ]
    loss, met = triplet_loss(5 * x, who, 0.3)
    assert float(loss) == pytest.approx(np.mean([e for e in excess if e > 0]), rel=1e-5)
    assert met == pytest.approx(np.mean([e <= 0 for e in excess]))


def test_a_batch_without_pairs_gives_zero():
    loss, met = triplet_loss(torch.randn(3, 2, requires_grad=True), torch.arange(3), 0.2)
    loss.backward()
    assert (loss.item(), met) == (0, 1)


def test_batches_hold_several_images_of_several_people():
    who = torch.arange(60) % 30  # two images each
    seen = []
    for rows in balanced_batches(who, 20, torch.Generator().manual_seed(0)):
        counts = torch.bincount(who[rows])
        assert set(counts[counts > 0].tolist()) == {2}
        assert len(rows) == 10
        seen += rows.tolist()
    assert len(set(seen)) == len(seen)


def test_the_low_rank_objective_falls_and_the_norm_stays():
    table = people_table(people=4, images=5, d=10, noise=0.3)
    T, objective = low_rank_map(table.x, table.identity, steps=40)
    assert min(objective) < 0.5 * objective[0]
    assert min(objective) > -1e-9
    assert float(torch.linalg.matrix_norm(T, 2)) == pytest.approx(1)
    x = table.x.double() @ T.T
    parts = [torch.linalg.matrix_norm(x[table.identity == p], "nuc") for p in range(4)]
    value = float(sum(parts) - torch.linalg.matrix_norm(x, "nuc"))
    assert value == pytest.approx(min(objective), rel=1e-6)


def test_independent_spans_are_left_alone():
    x = torch.block_diag(torch.randn(3, 4), torch.randn(3, 5))
    _, objective = low_rank_map(x, torch.tensor([0, 0, 0, 1, 1, 1]), steps=5)
    assert objective[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_pca_keeps_distances_and_takes_what_there_is(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    flat = pca(x, 2000)(x)
    assert flat.shape[1] == min(shape[0] - 1, shape[1])
    assert torch.allclose(torch.cdist(flat, flat), torch.cdist(x.double(), x.double()), atol=1e-6)
    assert pca(x, 3)(x).shape[1] == 3


def test_neighbours_are_searched_within_a_person_across_modalities(monkeypatch):
    seen = {}

    def spy(inputs, groups=None, **options):
        seen["groups"] = groups
        raise InputError("enough")

    monkeypatch.setattr("ldmnet.training.methods.ManifoldRegularizer", spy)
    table = people_table()
    with pytest.raises(InputError, match="enough"):
        learn(table.x, table.identity + 100, small(method=METHODS["ldmnet"]))
    assert torch.equal(seen["groups"], table.identity)


def test_divergence_keeps_the_last_good_embedding():
    table = people_table()
    for kind in ("network", "triplet"):
        settings = EmbeddingSettings(kind, train=face_training(20, lr=1e30), width=8, margin=0.5)
        learned = learn(table.x, table.identity, settings)
        assert "not finite" in learned.diverged
        assert bool(torch.isfinite(learned.embed(table.x)).all())


def test_an_extractor_is_any_module_or_callable():
    images = torch.randn(10, 3, 4, 4)
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 5))
    expected = module.eval()(images)
    out = extract(module.train(), images, batch_size=4)
    assert torch.allclose(out, expected)
    assert module.training
    assert not out.requires_grad
    sizes = []
    out = extract(lambda batch: (sizes.append(len(batch)), batch.numpy()[:, 0])[1], images, batch_size=4)
    assert (out.shape, sizes) == ((10, 16), [4, 4, 2])
    terminal = Console(force_terminal=True, file=io.StringIO(), record=True)
    extract(module, images, console=terminal)
    assert "100%" in terminal.export_text()


def test_what_an_extractor_may_not_give_is_said(says):
    images = torch.randn(10, 3)
    with says(InputError):
        extract(lambda batch: torch.zeros(1), images, batch_size=4)
    with says(InputError):
        extract(lambda batch: batch / (batch[0, 0] == images[0, 0]), images, batch_size=4)
    with says(InputError):
        extract(nn.Identity(), images[:0])


def test_bad_settings_and_inputs_are_said(says):
    table = people_table()
    with says(InputError):
        EmbeddingSettings("lda")
    with says(InputError):
        EmbeddingSettings(width=0)
    with says(InputError):
        EmbeddingSettings(margin=0)
    with says(InputError):
        learn(table.x, torch.zeros_like(table.identity))
    with pytest.raises(InputError, match=r"^x must be floating point"):
        learn(table.x.long(), table.identity)
