"""Early stopping on validation data, and the best epoch's weights put back."""

import pytest
import torch
from torch import nn

from clouds import cloud
from ldmnet import Method, TrainSettings, fit
from ldmnet.errors import InputError
from ldmnet.networks import FeatureNet, initialize
from ldmnet.training.features import evaluate
from ldmnet.training.history import Epoch, best_epoch

N = 60
Y = torch.arange(N) % 3
X = cloud(N, 6, dtype=torch.float32) + torch.eye(6)[Y]
HELD = cloud(45, 6, seed=9, dtype=torch.float32) + torch.eye(6)[torch.arange(45) % 3], torch.arange(45) % 3
METHODS = [Method(), Method("ldmnet", mu=0.05, lambda_tilde=0.2, n_neighbors=6, sigma_neighbor=4)]


def network():
    model = FeatureNet(nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU()), 32, 3)
    initialize(model, "he", 0)
    return model


def trained(method, patience=4, validation=HELD, **options):
    settings = TrainSettings(epochs=60, lr=0.1, batch_size=10, patience=patience, checkpoint_every=3)
    return fit(network(), (X, Y), method=method, settings=settings, validation=validation, progress=False, **options)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_it_stops_and_puts_the_best_weights_back(method, tmp_path):
    states = []
    model = network()
    settings = TrainSettings(epochs=60, lr=0.1, batch_size=10, patience=4, checkpoint_every=3)

    def keep(epoch):
        states.append({name: value.clone() for name, value in model.state_dict().items()})

    found = fit(
        model, (X, Y), method=method, settings=settings, validation=HELD, test=HELD, on_epoch=keep, progress=False
    )
    best = found.history[found.best_epoch]
    assert len(found.history) == found.best_epoch + 5 < 60
    assert best.val_accuracy == max(e.val_accuracy for e in found.history)
    assert (found.test_loss, found.test_accuracy) == (best.val_loss, best.val_accuracy)
    assert all(torch.equal(a, b) for a, b in zip(states[best.epoch].values(), model.state_dict().values(), strict=True))
    assert found.train_loss == evaluate(model, X, Y)[0]

    # a run that was cut anywhere, or that is finished, ends the same
    for cut_at in (found.best_epoch, len(found.history) - 2, len(found.history) - 1):
        path = tmp_path / f"{cut_at}.pt"

        def cut(epoch, at=cut_at):
            if epoch.epoch == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(method, checkpoint=path, on_epoch=cut)
        again = trained(method, checkpoint=path)
        assert again.history == found.history
        assert again.train_loss == found.train_loss
        weights = found.model.state_dict().values(), again.model.state_dict().values()
        assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_without_patience_nothing_changes():
    looked, plain = trained(Method(), patience=None), trained(Method(), patience=None, validation=None)
    assert len(looked.history) == 60
    assert looked.best_epoch is not None
    assert plain.best_epoch is None
    weights = looked.model.state_dict().values(), plain.model.state_dict().values()
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_patience_that_lasts_still_puts_the_best_weights_back():
    found = trained(Method(), patience=1000)
    assert len(found.history) == 60
    assert evaluate(found.model, *HELD) == (
        found.history[found.best_epoch].val_loss,
        found.history[found.best_epoch].val_accuracy,
    )


def test_the_best_epoch_is_by_accuracy_then_by_loss_then_the_first():
    def history(*scores):
        return [Epoch(i, 0.1, 1.0, 0.0, 0.5, loss, accuracy) for i, (accuracy, loss) in enumerate(scores)]

    assert best_epoch(history((0.5, 0.1), (0.9, 0.8), (0.9, 0.7), (0.9, 0.7))) == 2
    assert best_epoch(history((0.5, None), (None, None))) is None
    assert best_epoch([]) is None


def test_patience_needs_validation_data(says):
    with says(InputError):
        trained(Method(), validation=None)
