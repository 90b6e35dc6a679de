import copy
import csv
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from clouds import cloud
from ldmnet import IndexedDataset
from ldmnet.errors import InputError, StateError
from ldmnet.networks import initialize, mlp
from ldmnet.strength import COUPLING

pytest.importorskip("lightning", reason="the extra lightning is not installed")

from lightning.pytorch import LightningModule, Trainer

from ldmnet import ManifoldRegularizer
from ldmnet.integrations.lightning import ManifoldCallback

SETTINGS = {"mu": 0.1, "lambda_tilde": 0.5, "n_neighbors": 6, "sigma_neighbor": 4}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


class Module(LightningModule):
    def __init__(self, as_dict=False):
        super().__init__()
        self.net = mlp(6, 3, (16, 8))
        initialize(self.net, "he", 0)
        self.as_dict, self.seen = as_dict, []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_index):
        x, y = batch
        self.seen.append(len(x))
        loss = cross_entropy(self(x), y)
        return {"loss": loss, "extra": 1} if self.as_dict else loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def data():
    y = torch.arange(40) % 3
    return cloud(40, 6, dtype=torch.float32) + 2 * torch.eye(6)[y], y


def callback(**changes):
    return ManifoldCallback(*data(), layer="net.features", **{**SETTINGS, **changes})


def loader(batch_size=10, indexed=True, dataset=None):
    dataset = TensorDataset(*data()) if dataset is None else dataset
    return DataLoader(IndexedDataset(dataset) if indexed else dataset, batch_size=batch_size)


def fit(module, callback, *, epochs=4, batch_size=10, ckpt_path=None, train=None, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(max_epochs=epochs, callbacks=[callback], **{"enable_checkpointing": False, **quiet, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, loader(batch_size) if train is None else train, ckpt_path=ckpt_path)
    return trainer


def weights(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def test_the_penalty_is_in_the_gradient():
    plain, pulled = Module(), Module()
    ours = callback()
    fit(pulled, ours)
    fit(plain, callback(mu=1e-12, lambda_tilde=0.0))
    assert pulled.seen == [10] * 16  # the module sees (x, y)
    assert len(ours.regularizer.log) == 2
    assert not torch.allclose(weights(plain), weights(pulled), atol=1e-4)


def test_a_step_may_return_a_dictionary():
    first, second = Module(), Module(as_dict=True)
    fit(first, callback())
    fit(second, callback())
    assert torch.equal(weights(first), weights(second))


def test_accumulated_batches_are_one_large_batch():
    small, large = Module(), Module()
    fit(small, callback(), batch_size=5, accumulate_grad_batches=4)
    fit(large, callback(), batch_size=20)
    torch.testing.assert_close(weights(small), weights(large), atol=1e-5, rtol=1e-5)


def test_half_precision():
    exact, half = callback(), callback()
    fit(Module(), exact)
    fit(Module(), half, precision="bf16-mixed")
    assert half.regularizer.target.dtype == torch.float32
    assert float((half.regularizer.target - exact.regularizer.target).norm() / exact.regularizer.target.norm()) < 0.05


def test_weights_in_half_precision():
    ours = callback()
    fit(Module(), ours, precision="bf16-true")
    assert len(ours.regularizer.log) == 2
    assert ours.regularizer.target.dtype == torch.float32


def test_a_step_that_takes_the_batch_alone():
    class Short(Module):
        def training_step(self, batch):
            return super().training_step(batch, 0)

    first, second = Module(), Short()
    fit(first, callback())
    fit(second, callback())
    assert torch.equal(weights(first), weights(second))


def test_manual_optimisation_is_refused():
    class Manual(Module):
        automatic_optimization = False

    module = Manual()
    with pytest.raises(InputError, match="under manual optimisation"):
        fit(module, callback())
    assert "training_step" not in vars(module)


def test_a_second_training_may_begin_in_any_epoch():
    ours = callback()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(max_epochs=3, callbacks=[ours], enable_checkpointing=False, **quiet)
    module = Module()
    trainer.fit(module, loader())
    trainer.fit_loop.max_epochs = 5
    trainer.fit(module, loader())
    assert len(ours.regularizer.log) == 2  # epochs 3 and 4


def test_a_checkpoint_may_be_saved_before_any_training(tmp_path):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}

    class Validated(Module):
        def validation_step(self, batch, batch_index):
            return None

    trainer = Trainer(callbacks=[callback()], enable_checkpointing=False, **quiet)
    trainer.validate(Validated(), loader(), verbose=False)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    resumed = callback()
    resumed.load_state_dict(callback().state_dict())
    fit(Module(), resumed, epochs=2)
    assert len(resumed.regularizer.log) == 1


def test_a_checkpoint_brings_the_targets_back(tmp_path):
    whole, resumed = Module(), Module()
    ours, second = callback(), callback()
    fit(whole, ours, epochs=5)
    fit(Module(), callback(), epochs=3).save_checkpoint(tmp_path / "a.ckpt")
    fit(resumed, second, epochs=5, ckpt_path=tmp_path / "a.ckpt")
    assert torch.equal(second.regularizer.target, ours.regularizer.target)
    assert torch.equal(weights(resumed), weights(whole))


def test_going_on_within_an_epoch_does_not_step_again(tmp_path):
    first, second = callback(), callback()
    fit(Module(), first, epochs=4, max_steps=10).save_checkpoint(tmp_path / "a.ckpt")  # two epochs and a half
    fit(Module(), second, epochs=3, ckpt_path=tmp_path / "a.ckpt")
    assert len(first.regularizer.log) == len(second.regularizer.log) == 2
    assert torch.equal(first.regularizer.target, second.regularizer.target)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path, says):
    trainer = fit(Module(), callback(), epochs=1)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    with says(StateError):
        fit(Module(), callback(mu=0.2), ckpt_path=tmp_path / "a.ckpt")


def test_the_module_is_left_as_it_was():
    module = Module()
    before = copy.copy(module.__dict__)
    fit(module, callback(), epochs=1)
    assert module.training_step.__func__ is Module.training_step
    assert "training_step" not in before
    assert not module.net.features._forward_hooks


def test_batches_need_an_index(says):
    module = Module()
    trainer = Trainer(max_epochs=1, callbacks=[callback()], logger=False, enable_progress_bar=False, accelerator="cpu",
                      enable_checkpointing=False, enable_model_summary=False)  # fmt: skip
    with says(InputError):
        trainer.fit(module, loader(indexed=False))
    assert module.training_step.__func__ is Module.training_step


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"^the model has no layer 'features'\. Its layers: net, net\.features, "):
        fit(Module(), ManifoldCallback(*data(), layer="features", **SETTINGS))


def from_loader(**changes):
    return ManifoldCallback(layer="net.features", **{**SETTINGS, **changes})


@pytest.mark.parametrize("workers", [0, 2])
def test_without_inputs_the_trainers_loader_is_swept(workers):
    x, y = data()
    ours, given = from_loader(), from_loader(groups=y)
    shuffled = DataLoader(IndexedDataset(TensorDataset(x, y)), 15, shuffle=True, drop_last=True, num_workers=workers)
    module = Module()
    swept = module.net.features(x).detach()
    fit(module, ours, train=shuffled, epochs=1)
    alone = ManifoldRegularizer(x, y, **SETTINGS, input_scale=0.0)  # the graph is on the features, class by class
    alone.step(swept)
    torch.testing.assert_close(ours.regularizer.target, alone.target)
    fit(Module(), given, epochs=1)
    torch.testing.assert_close(given.regularizer.target, alone.target)


class Longer(Module):
    """Samples have more than two items."""

    def training_step(self, batch, batch_index):
        return super().training_step((batch[0], batch[1].flatten()), batch_index)


@pytest.mark.parametrize("column", [False, True])
def test_the_second_of_several_items_is_the_class(column):
    x, y = data()
    samples = TensorDataset(x, y[:, None] if column else y, torch.rand(40))
    ours = from_loader()
    fit(Longer(), ours, train=loader(dataset=samples), epochs=1)
    assert torch.equal(ours.regularizer.groups.cpu(), y)


def test_a_checkpoint_that_was_validated_is_not_taken_into_another_training(tmp_path):
    ours, module = from_loader(), Module()
    module.validation_step = lambda batch: None
    trainer = fit(module, ours, epochs=4)
    trainer.save_checkpoint(tmp_path / "old.ckpt")
    trainer.validate(module, loader(indexed=False), ckpt_path=tmp_path / "old.ckpt", verbose=False)
    fit(Module(), ours, epochs=2)
    assert len(ours.regularizer.log) == 1


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_a_loader_in_half_precision(precision):
    exact, half = from_loader(), from_loader()
    fit(Module(), exact)
    fit(Module(), half, precision=precision)
    assert half.regularizer.target.dtype == torch.float32
    assert float((half.regularizer.target - exact.regularizer.target).norm() / exact.regularizer.target.norm()) < 0.1


def test_labels_that_are_no_classes_make_one_graph():
    x, y = data()
    swept = Module().net.features(x).detach()
    alone = ManifoldRegularizer(x, None, **SETTINGS, input_scale=0.0)
    alone.step(swept)

    class Regression(Module):
        def training_step(self, batch, batch_index):
            x, y = batch
            return (self(x)[:, 0] - y).square().mean()

    ours = from_loader()
    fit(Regression(), ours, train=loader(dataset=TensorDataset(x, y.float())), epochs=1)
    torch.testing.assert_close(ours.regularizer.target, alone.target)


def test_a_checkpoint_brings_the_targets_back_without_inputs(tmp_path):
    whole, resumed = Module(), Module()
    ours, second = from_loader(), from_loader()
    fit(whole, ours, epochs=5)
    fit(Module(), from_loader(), epochs=3).save_checkpoint(tmp_path / "a.ckpt")
    fit(resumed, second, epochs=5, ckpt_path=tmp_path / "a.ckpt")
    assert torch.equal(second.regularizer.target, ours.regularizer.target)
    assert torch.equal(weights(resumed), weights(whole))


class Formless(LightningModule):
    """A module without a forward, and batches by name."""

    def __init__(self):
        super().__init__()
        self.net = mlp(6, 3, (16, 8))
        initialize(self.net, "he", 0)

    def training_step(self, batch, batch_index):
        (row,) = batch
        return cross_entropy(self.net(row["values"]), row["sort"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def test_forward_says_what_the_sweep_runs(says):
    x, y = data()
    rows = [{"values": v, "sort": int(c)} for v, c in zip(x, y, strict=True)]
    with says(InputError):
        fit(Formless(), from_loader(), train=loader(dataset=rows))
    by_name, plain = Formless(), Module()
    said = from_loader(groups=y, forward=lambda module, batch: module.net(batch[0]["values"]))
    fit(by_name, said, train=loader(dataset=rows))
    fit(plain, from_loader())
    assert torch.equal(weights(by_name), weights(plain))


def test_several_loaders_are_refused():
    with pytest.raises(InputError, match="reads the training set from one DataLoader, got a dict"):
        fit(Module(), from_loader(), train={"a": loader(), "b": loader()})


def test_the_penalty_and_every_update_are_logged(tmp_path):
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    ours, kept = callback(), loggers.CSVLogger(tmp_path)
    trainer = fit(Module(), ours, logger=kept)
    with open(kept.experiment.metrics_file_path, newline="") as file:
        rows = list(csv.DictReader(file))
    logged = {name: [float(row[name]) for row in rows if row[name]] for name in ("ldmnet/penalty", "ldmnet/move")}
    assert len(logged["ldmnet/penalty"]) == 4  # the mean of every epoch
    assert all(value > 0 for value in logged["ldmnet/penalty"])
    assert logged["ldmnet/move"] == pytest.approx([update.move for update in ours.regularizer.log])
    wanted = ours.regularizer.log[-1].scalars()
    wanted.pop("ldmnet/penalty", None)
    for name, value in wanted.items():
        assert trainer.callback_metrics[name].item() == pytest.approx(value), name


class Tokens(LightningModule):
    """Reads whole numbers through an embedding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.EmbeddingBag(30, 16), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, tokens):
        return self.net(tokens)

    def training_step(self, batch, batch_index):
        tokens, y = batch
        return cross_entropy(self(tokens), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def test_a_model_of_tokens_needs_no_number():
    y = torch.arange(60) % 3
    tokens = torch.randint(0, 10, (60, 8), generator=torch.Generator().manual_seed(0)) + 10 * y[:, None]
    module, ours = Tokens(), ManifoldCallback(layer="net.2")
    fit(module, ours, train=loader(dataset=TensorDataset(tokens, y)), epochs=24)
    log = ours.regularizer.log
    assert len(log) == 12
    assert log[0].strength == 0
    assert log[-1].strength > 0.1  # the slow start has begun by itself
    assert log[-1].energy != 1  # and the graph takes part
    assert log[-1].lambda_tilde == pytest.approx(log[-1].mu / COUPLING)
    assert (module(tokens).argmax(1) == y).all()


def test_a_training_too_short_for_the_pull_is_told():
    trainer = Trainer(max_epochs=1, callbacks=[ManifoldCallback(layer="net.features")], logger=False, accelerator="cpu",
                      enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False)  # fmt: skip
    with pytest.warns(UserWarning, match=r"^the regulariser was not in force: in 1 update its pull"):
        trainer.fit(Module(), loader(10))
