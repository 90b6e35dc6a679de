"""LDMNet in a plain PyTorch loop: `due`, `step` and `penalty` are all there is to it.

Trains on 30 images of each digit and tests on the other 1,497: without a penalty, with the graph off, and with it.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ldmnet import ManifoldRegularizer, sweep
from ldmnet.data import stratified
from ldmnet.networks import initialize, mlp


def data(per_class: int = 30) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.as_tensor(pixels / 8 - 1, dtype=torch.float32), torch.as_tensor(labels)
    train = stratified(y, per_class, seed=0)
    test = torch.ones(len(y), dtype=torch.bool)
    test[train] = False
    return x[train], y[train], x[test], y[test]


def network() -> nn.Module:
    model = mlp(64, 10, (256, 256))
    initialize(model, "he", seed=0)
    return model


def train(model: nn.Module, x: Tensor, y: Tensor, regularizer: ManifoldRegularizer | None, epochs: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    draw = torch.Generator().manual_seed(0)
    for epoch in range(epochs):
        if regularizer and regularizer.due(epoch):
            regularizer.step(sweep(model, x, layer="features"))
        for index in torch.randperm(len(x), generator=draw).split(20):
            f = model.features(x[index])
            loss = cross_entropy(model.head(f), y[index])
            if regularizer:
                loss = loss + regularizer.penalty(f, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main(epochs: int = 60) -> None:
    x, y, x_test, y_test = data()
    control = ManifoldRegularizer(groups=y, coupling=float("inf"))
    for name, regularizer in (("plain", None), ("control", control), ("LDMNet", ManifoldRegularizer(groups=y))):
        model = network()
        train(model, x, y, regularizer, epochs)
        accuracy = (sweep(model, x_test).argmax(1) == y_test).double().mean()
        print(f"{name}: {100 * accuracy:.1f} % of {len(y_test)} test images")


if __name__ == "__main__":
    main()
