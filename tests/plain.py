"""Algorithm 1 as a user writes it, with the core alone: what every integration must agree with."""

import torch
from torch.nn.functional import cross_entropy

from ldmnet import ManifoldRegularizer, sweep


def plain_loop(
    model,
    x,
    y,
    batches,
    *,
    epochs,
    lr,
    momentum=0.9,
    features=None,
    scores=None,
    layer="features",
    running=False,
    **options,
):
    """Train in place and return the regulariser.

    `batches(epoch)` gives the epoch's indices and `lr(epoch)` its rate; `features(x)` and `scores(f)` are the two
    halves of the model, its own `features` and `head` unless given; `running` sweeps before the first update only.
    """
    kind = "running" if running else "sweep"
    regularizer = ManifoldRegularizer(groups=y, features=kind, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr(0), momentum=momentum)
    features, scores = features or model.features, scores or (lambda f: model.head(f))
    for epoch in range(epochs):
        if regularizer.due(epoch):
            regularizer.step(sweep(model, x, layer=layer) if regularizer.needs_sweep else None)
        optimizer.param_groups[0]["lr"] = lr(epoch)
        model.train()
        for index in batches(epoch):
            f = features(x[index]).flatten(1)
            loss = cross_entropy(scores(f), y[index]) + regularizer.penalty(f, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return regularizer
