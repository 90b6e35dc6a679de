"""How large mu may be: the penalty's curvature against the step that SGD takes.

SGD with momentum m is stable along a direction of curvature h only while lr * h < 2 (1 + m). The penalty
mu/2 |f(x) - target|^2 has, to first order, the curvature mu times the largest eigenvalue of J'J, J the Jacobian of
the features in the weights, averaged over the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ldmnet.errors import InputError
from ldmnet.training.features import FeatureTap, Layer, evaluating


def feature_curvature(model: nn.Module, inputs: Tensor, layer: Layer, *, rounds: int = 12) -> float:
    """The largest eigenvalue of the mean over a batch of J'J, by power iteration.

    Args:
        model: the network, left as it was.
        inputs: a batch, (b, ...).
        layer: the feature layer's name, or several.
        rounds: power iterations.
    """
    weights = [p for p in model.parameters() if p.requires_grad]
    plain = sdpa_kernel(SDPBackend.MATH)  # the other kernels of attention have no second derivative
    with plain, torch.enable_grad(), evaluating(model), FeatureTap(model, layer) as tap:
        _, features = tap(inputs)
        if not features.requires_grad:
            raise InputError(
                f"the layer {layer!r} depends on no weight that is trained: nothing can pull its features."
            )
        weights = [
            w for w, g in zip(weights, _grad(features.sum(), weights, retain=True), strict=True) if g is not None
        ]
        probe = torch.ones_like(features, requires_grad=True)
        back = torch.autograd.grad(features, weights, probe, create_graph=True)  # J' probe, linear in probe
        draw = torch.Generator().manual_seed(0)
        direction = [torch.randn(w.shape, generator=draw).to(w) for w in weights]
        size = 0.0
        for _ in range(rounds):
            norm = torch.sqrt(torch.stack([d.square().sum() for d in direction]).sum()).clamp(min=1e-30)
            direction = [d / norm for d in direction]
            (forward,) = torch.autograd.grad(back, probe, direction, retain_graph=True)  # J direction
            direction = list(torch.autograd.grad(features, weights, forward, retain_graph=True))
            size = float(torch.sqrt(torch.stack([d.square().sum() for d in direction]).sum()))
    return size / len(inputs)


def largest_stable_mu(curvature: float, lr: float, momentum: float) -> float:
    """The mu above which SGD cannot follow the penalty."""
    return 2 * (1 + momentum) / (lr * max(curvature, 1e-30))


def stable_mu(
    model: nn.Module, inputs: Tensor, layer: Layer, lr: float, momentum: float, batch_size: int = 100
) -> float:
    """The largest mu that SGD can follow on a network as it is, from a batch spread evenly over the inputs."""
    batch = inputs[:: max(1, len(inputs) // batch_size)][:batch_size]
    return largest_stable_mu(feature_curvature(model, batch, layer), lr, momentum)


def _grad(out: Tensor, weights: list[nn.Parameter], *, retain: bool) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(out, weights, retain_graph=retain, allow_unused=True)
