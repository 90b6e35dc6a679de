import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clouds import cloud
from ldmnet import Method, TrainSettings, fit, sweep
from ldmnet.errors import InputError
from ldmnet.networks import initialize, mlp, set_dropout
from ldmnet.training import FeatureTap, evaluate


def network(dropout=0.0):
    model = mlp(6, 3, (16, 8))
    initialize(model, "he", 0)
    set_dropout(model, dropout)
    return model


def inputs(n=23):
    return cloud(n, 6, dtype=torch.float32)


def test_sweep_runs_in_eval_mode_and_is_deterministic_with_dropout():
    model, x = network(0.5).train(), inputs()
    first, second = sweep(model, x, layer="features"), sweep(model, x, layer="features")
    assert torch.equal(first, second)
    assert torch.equal(sweep(model, x), sweep(model, x))
    model.eval()
    torch.testing.assert_close(first, model.features(x).detach())


def test_sweep_takes_inputs_to_the_network():
    assert sweep(network().to("meta"), inputs(), layer="features").device.type == "meta"


def test_sweep_leaves_running_statistics_alone():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).train()
    sweep(model, inputs())
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    assert int(model[1].num_batches_tracked) == 0


def test_sweep_puts_the_training_mode_back_submodule_by_submodule():
    model = network(0.5).train()
    model.features[1].eval()
    model.head.eval()
    before = [m.training for m in model.modules()]
    sweep(model, inputs(), layer="features")
    assert [m.training for m in model.modules()] == before
    assert True in before
    assert False in before


def test_sweep_puts_the_training_mode_back_after_an_error():
    model = network().train()
    with pytest.raises(RuntimeError):
        sweep(model, torch.zeros(4, 5))
    assert all(m.training for m in model.modules())
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("batch_size", [1, 5, 23, 500])
def test_sweep_keeps_the_order_whatever_the_batch_size(batch_size):
    model, x = network(), inputs()
    whole = model.features(x).detach()
    torch.testing.assert_close(sweep(model, x, layer="features", batch_size=batch_size), whole)
    assert sweep(model, x, batch_size=batch_size).shape == (23, 3)


def test_the_named_layer_is_after_the_relu_and_before_dropout():
    model, x = network(0.5).train(), inputs()
    f = sweep(model, x, layer="features")
    assert f.shape == (23, 8)
    assert (f >= 0).all()
    model.eval()
    torch.testing.assert_close(model.head(f), sweep(model, x))
    before_relu = sweep(model, x, layer="features.4")
    torch.testing.assert_close(f, before_relu.relu())


def test_sweep_flattens_maps_and_records_no_gradient():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    f = sweep(model, torch.randn(5, 1, 4, 4), layer="0")
    assert f.shape == (5, 8)
    assert not f.requires_grad
    assert not f.is_inference()  # it may be used in a later computation with gradients
    (f.sum() * model[0].weight.sum()).backward()


def test_sweep_of_nothing(says):
    with says(InputError):
        sweep(network(), torch.zeros(0, 6))


def test_no_layer_of_that_name(says):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with says(InputError):
        sweep(model, torch.zeros(1, 2), layer="features")
    with says(InputError):
        FeatureTap(model, "")


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.LSTM(2, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)[0]


def test_a_layer_that_does_not_run_or_gives_no_tensor(says):
    with says(InputError):
        sweep(Odd(), torch.zeros(3, 2), layer="unused")
    with says(InputError):
        sweep(Odd(), torch.zeros(3, 2), layer="used")
    with says(InputError):
        sweep(Odd().used, torch.zeros(3, 2))
    with says(InputError):
        sweep(nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)), torch.zeros(3, 2), layer="1")


def test_the_tap_gives_output_and_features_of_one_pass_with_gradient():
    model, x = network(0.5).train(), inputs()
    passes = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    with FeatureTap(model, "features") as tap:
        logits, f = tap(x)
    assert len(passes) == 1
    assert logits.shape == (23, 3)
    f.sum().backward()
    assert model.features[1].weight.grad.abs().sum() > 0
    assert not model.features._forward_hooks


def test_evaluate_is_the_mean_loss_and_the_accuracy_in_eval_mode():
    model, x = network(0.5).train(), inputs()
    y = torch.arange(23) % 3
    loss, accuracy = evaluate(model, x, y, batch_size=7)
    assert model.training
    model.eval()
    logits = model(x)
    assert loss == pytest.approx(F.cross_entropy(logits, y).item(), rel=1e-5)
    assert accuracy == pytest.approx((logits.argmax(1) == y).double().mean().item())


def test_the_tap_reads_the_pass_of_somebody_else_once():
    model, x = network().train(), inputs()
    with FeatureTap(model, "features") as tap:
        model(x[:5])
        logits = model(x)
        f = tap.features()
        torch.testing.assert_close(model.head(f), logits)
        with pytest.raises(InputError, match="the layer 'features' did not run"):
            tap.features()
    f.sum().backward()
    assert not model.features._forward_hooks


def test_the_tap_passes_every_argument_on():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 2)

        def forward(self, x, *, twice):
            return {"out": self.inner(x) * (2 if twice else 1)}

    model, x = Two(), inputs()
    with FeatureTap(model, "inner") as tap:
        out, f = tap(x, twice=True)
    assert torch.equal(out["out"], 2 * f)


def test_tokens_are_laid_side_by_side():
    model = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(20, 3))
    tokens = torch.randint(0, 7, (9, 5))
    f = sweep(model, tokens, layer="0")
    assert torch.equal(f, model[0](tokens).detach().flatten(1))


def test_what_a_module_makes_in_a_sweep_serves_training():
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))  # its weights are made in the first pass
    x = inputs()
    sweep(model, x, layer="0")
    model(x).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert model[0].weight.grad.abs().sum() > 0


def test_a_model_without_weights(says):
    x = inputs()
    assert torch.equal(sweep(nn.ReLU(), x), x.relu())
    with says(InputError):
        sweep(nn.ReLU(), x, layer="features")
    with says(InputError):
        sweep(x, nn.ReLU())


def test_several_layers_are_joined_in_the_order_of_their_names():
    model = mlp(5, 3, (4, 6))
    x = torch.randn(7, 5)
    with FeatureTap(model, ("features", "features.2")) as tap:
        out, both = tap(x)
    hidden = torch.relu(x @ model.features[1].weight.T + model.features[1].bias)
    torch.testing.assert_close(both, torch.cat([model.features(x), hidden], 1))
    torch.testing.assert_close(out, model(x))
    torch.testing.assert_close(sweep(model, x, layer=["features", "features.2"]), both.detach())


@pytest.mark.parametrize("layer", [(), ("features", "features"), 3, (3,), {"features"}, nn.Linear(2, 2)])
def test_layers_that_cannot_be_joined(layer):
    with pytest.raises(InputError, match="layer must be a layer's name or several different ones"):
        FeatureTap(mlp(5, 3, (4,)), layer)


def test_a_network_trains_with_two_layers_regularised():
    x, y = torch.randn(24, 5, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
    settings = TrainSettings(epochs=2, lr=0.01)
    method = Method("ldmnet", mu=0.1, lambda_tilde=0.5, n_neighbors=5, sigma_neighbor=3)
    fitted = fit(
        mlp(5, 3, (4, 6)), (x, y), method=method, settings=settings, layer=("features.2", "features"), progress=False
    )
    assert fitted.regularizer is not None
    assert fitted.regularizer.target.shape == (24, 10)
