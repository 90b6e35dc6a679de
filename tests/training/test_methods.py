import math
from dataclasses import asdict, fields, replace

import pytest
import torch

from clouds import cloud
from ldmnet import ManifoldRegularizer, ManifoldSettings, Method, TrainSettings, fit
from ldmnet.errors import InputError
from ldmnet.networks import mlp, set_dropout
from ldmnet.training.methods import METHODS

INPUTS, LABELS = cloud(30, 5), torch.arange(30) % 3
LDMNET, CONTROL = Method("ldmnet", mu=0.01, lambda_tilde=0.05), Method("control", mu=0.01)
DECAY, DROPOUT = Method("weight_decay", weight_decay_w=0.1), Method("dropout", dropout=0.5)


def test_w_of_eq_24_becomes_2w():
    assert DECAY.torch_weight_decay == pytest.approx(0.2)
    assert Method().torch_weight_decay == 0


@pytest.mark.parametrize("method", [LDMNET, CONTROL, Method("ldmnet"), Method("control"), DROPOUT, Method()])
def test_weight_decay_is_on_only_where_asked_for(method):
    assert method.weight_decay_w == 0
    assert method.torch_weight_decay == 0


def test_weight_decay_can_be_asked_for_beside_ldmnet():
    assert Method("ldmnet", mu=0.01, lambda_tilde=0.05, weight_decay_w=0.1).torch_weight_decay == pytest.approx(0.2)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Method("dropout"),
        lambda: Method("weight_decay"),
        lambda: Method("ldmnet", mu=0.1),
    ],
)
def test_a_method_without_its_strength_is_refused(made, says):
    with says(InputError):
        made()


def test_the_named_methods():
    assert METHODS == ("none", "weight_decay", "dropout", "control", "ldmnet")
    made = (Method(), DECAY, DROPOUT, Method("control"), Method("ldmnet"))
    assert tuple(method.name for method in made) == METHODS
    assert [method.pulls for method in made] == [False, False, False, True, True]


@pytest.mark.parametrize("method", [Method(), DECAY, DROPOUT])
def test_methods_without_a_penalty_have_no_regularizer(method):
    assert method.regularizer(INPUTS, LABELS) is None


def test_ldmnet_builds_its_regularizer_with_its_numbers():
    method = Method(
        "ldmnet",
        mu=0.3,
        lambda_tilde=0.7,
        mass="consistent",
        n_neighbors=6,
        sigma_neighbor=4,
        epochs_per_update=5,
        input_scale=0.5,
    )
    regularizer = method.regularizer(INPUTS, LABELS)
    assert isinstance(regularizer, ManifoldRegularizer)
    for name, value in asdict(regularizer.settings).items():
        assert getattr(method, name) == (None if name == "features" else value)
    assert regularizer.settings.features == "sweep"  # as the paper does
    assert torch.equal(regularizer.groups, LABELS)
    assert torch.equal(regularizer.inputs, INPUTS)


@pytest.mark.parametrize("name", ["ldmnet", "control"])
def test_without_a_number_only_the_first_update_needs_a_sweep(name):
    assert Method(name).regularizer(INPUTS, LABELS).settings.features == "running"
    assert Method(name, features="sweep").regularizer(INPUTS, LABELS).settings.features == "sweep"


def test_the_papers_numbers_are_the_defaults():
    regularizer = LDMNET.regularizer(INPUTS, LABELS)
    settings = asdict(regularizer.settings)
    assert (settings["n_neighbors"], settings["sigma_neighbor"]) == (20, 10)
    assert (settings["epochs_per_update"], settings["max_steps"]) == (2, 50)
    assert settings["input_scale"] == 1


def test_without_numbers_the_graph_is_built_on_the_features_alone():
    regularizer = Method("ldmnet", strength=0.7, coupling=0.1).regularizer(INPUTS, LABELS)
    assert regularizer.inputs is None
    assert torch.equal(regularizer.groups, LABELS)
    assert (regularizer.settings.strength, regularizer.coupling, regularizer.mu) == (0.7, 0.1, 0)


@pytest.mark.parametrize("control", [CONTROL, Method("control")])
def test_the_control_is_the_same_loop_with_the_graph_off(control):
    assert (CONTROL.mu, CONTROL.epochs_per_update) == (LDMNET.mu, LDMNET.epochs_per_update)
    regularizer = control.regularizer(INPUTS, LABELS)
    assert (regularizer.coupling, regularizer.lambda_tilde) == (math.inf, 0)
    for seed in range(3):
        f = cloud(30, 4, seed=seed)
        regularizer.step(f)
        assert torch.equal(regularizer.target, f)


@pytest.mark.parametrize(
    "numbers",
    [
        {"name": "lasso"},
        {"weight_decay_w": -0.1},
        {"dropout": 1.0},
        {"dropout": -0.5},
        {"name": "ldmnet", "mu": -1.0, "lambda_tilde": 1.0},
        {"name": "ldmnet", "strength": 0.0},
        {"name": "control", "strength": -0.1},
        {"name": "ldmnet", "coupling": 0.0},
        {"name": "ldmnet", "mu": "auto"},
        {"name": "ldmnet", "mu": 1.0, "lambda_tilde": 0.0},
        {"name": "ldmnet", "coupling": math.inf},
        {"name": "ldmnet", "strength": 0.3, "mu": 1.0, "lambda_tilde": 0.1},
        {"name": "control", "coupling": 0.2},
        {"strength": 0.3},
        {"name": "control", "mu": 1.0, "lambda_tilde": 0.1},
    ],
)
def test_numbers_out_of_range(numbers, says):
    with says(InputError):
        Method(**numbers)


def test_a_networks_own_dropout_stays_unless_the_method_is_dropout():
    inputs, labels = torch.randn(12, 4), torch.arange(12) % 3
    model = mlp(4, 3, (5, 5))
    set_dropout(model, 0.3)
    settings = TrainSettings(epochs=1, lr=0.01)
    fit(model, (inputs, labels), method=Method(), settings=settings, progress=False)
    assert {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}
    fit(model, (inputs, labels), method=Method("dropout", dropout=0.5), settings=settings, progress=False)
    assert {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)} == {0.5}


def test_the_regulariser_gets_every_setting_of_the_method():
    """One value that is not the default per option: none is typed again, so none can be forgotten."""
    other = {
        "strength": 0.7,
        "coupling": 0.1,
        "n_neighbors": 6,
        "sigma_neighbor": 4,
        "epochs_per_update": 3,
        "max_steps": 7,
        "tol": 1e-2,
        "mass": "consistent",
        "input_scale": 0.5,
        "features": "running",
        "neighbors": "auto",
    }
    made = Method("ldmnet", **other).regularizer(INPUTS, LABELS).settings
    assert made == ManifoldSettings(**other) == ManifoldRegularizer(settings=made).settings
    paper = {"mu", "lambda_tilde"}
    assert paper | set(other) == {field.name for field in fields(ManifoldSettings)}
    assert ManifoldRegularizer(settings=made, tol=1e-3).settings == replace(made, tol=1e-3)


def test_a_method_refuses_what_its_regulariser_would():
    with pytest.raises(InputError, match=r"tol must be above zero and below one, got 2\.0\."):
        Method("ldmnet", tol=2.0)
    with pytest.raises(TypeError):
        ManifoldSettings(0.3)  # options are given by name
