"""The regulariser in a loop of one's own: mixed precision, gradient accumulation, torch.compile."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from clouds import cloud
from ldmnet import ManifoldRegularizer, sweep
from ldmnet.networks import initialize, mlp

N = 48
SETTINGS = {"mu": 0.1, "lambda_tilde": 0.5, "n_neighbors": 6, "sigma_neighbor": 4}


def data():
    y = torch.arange(N) % 3
    return cloud(N, 6, dtype=torch.float32) + 2 * torch.eye(6)[y], y


def network():
    model = mlp(6, 3, (32, 16))
    initialize(model, "he", 0)
    return model


def train(model, *, epochs=6, batch=12, parts=1, amp=False, features=None):
    """A loop with any of the three; returns the regulariser."""
    x, y = data()
    features = features or model.features
    regularizer = ManifoldRegularizer(x, y, **SETTINGS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    draw = torch.Generator().manual_seed(0)
    for epoch in range(epochs):
        if regularizer.due(epoch):
            with torch.autocast("cpu", torch.bfloat16, enabled=amp):
                swept = sweep(features, x)
            regularizer.step(swept)
        for index in torch.randperm(N, generator=draw).split(batch):
            for part in index.chunk(parts):
                with torch.autocast("cpu", torch.bfloat16, enabled=amp):
                    f = features(x[part])
                    loss = cross_entropy(model.head(f), y[part]) + regularizer.penalty(f, part)
                (loss / parts).backward()
            optimizer.step()
            optimizer.zero_grad()
    return regularizer


def weights(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_bfloat16_autocast_keeps_the_targets_in_single_precision():
    exact, half = network(), network()
    wanted, found = train(exact), train(half, amp=True)
    assert found.target.dtype == torch.float32
    assert torch.isfinite(found.target).all()
    assert float((found.target - wanted.target).norm() / wanted.target.norm()) < 0.05
    x, y = data()
    assert (sweep(half, x).argmax(1) == y).double().mean() > 0.9


def test_the_penalty_of_half_precision_features_is_summed_in_single_precision():
    x, y = data()
    regularizer = ManifoldRegularizer(x, y, **SETTINGS)
    f = network().features(x).detach()
    regularizer.step(f)
    half = f.bfloat16().requires_grad_()
    penalty = regularizer.penalty(half, torch.arange(N))
    assert penalty.dtype == torch.float32
    torch.testing.assert_close(penalty, regularizer.penalty(half.float(), torch.arange(N)))
    penalty.backward()
    assert half.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("parts", [2, 3])
def test_accumulated_gradients_are_those_of_the_whole_batch(parts):
    whole, split = network(), network()
    wanted, found = train(whole), train(split, parts=parts)
    torch.testing.assert_close(weights(split), weights(whole), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.target, wanted.target, atol=1e-4, rtol=1e-4)


def test_loss_scaling_scales_the_penalty_too():
    x, y = data()
    gradients = []
    for scale in (1.0, 1024.0):
        model = network()
        regularizer = ManifoldRegularizer(x, y, **SETTINGS)
        regularizer.step(sweep(model, x, layer="features"))
        f = model.features(x)
        (scale * (cross_entropy(model.head(f), y) + regularizer.penalty(f, torch.arange(N)))).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]) / scale)
    torch.testing.assert_close(*gradients)


def compiler_works(folder: Path) -> bool:
    """Whether there is a C++ compiler with the headers that compiled code includes."""
    program = shutil.which("g++") or shutil.which("clang++")
    if program is None:
        return False
    (folder / "a.cpp").write_text("#include <Python.h>\n#include <cmath>\nint main() { return 0; }\n")
    headers = f"-I{__import__('sysconfig').get_paths()['include']}"
    done = subprocess.run([program, headers, "-c", "a.cpp", "-o", "a.o"], cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.slow
def test_a_compiled_network_trains_alike(tmp_path):
    if not compiler_works(tmp_path):
        pytest.skip("torch.compile needs a C++ compiler with Python's headers")
    eager, compiled = network(), network()
    wanted = train(eager, epochs=3)
    found = train(compiled, epochs=3, features=torch.compile(compiled.features))
    torch.testing.assert_close(found.target, wanted.target, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(weights(compiled), weights(eager), atol=1e-4, rtol=1e-4)
