"""The regularisation methods that are compared, each a frozen set of numbers.

`none`, `weight_decay` (eq. 24), `dropout`, `ldmnet`, and `control`: the same loop as `ldmnet` with the graph
switched off, so that a reader sees what the manifold adds to the proximal pull.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.graph.neighbors import SearchKind
from ldmnet.graph.weights import Symmetrize
from ldmnet.pim.system import Mass
from ldmnet.regularizer import SETTINGS, ManifoldRegularizer
from ldmnet.training.settings import with_python_numbers

AUTO_SHARE = 1 / 45  # of the largest stable mu: near MNIST's printed setting, see docs/theory.md
AUTO_COUPLING = 0.2  # mu / lambda_tilde there

METHODS = ("none", "weight_decay", "dropout", "control", "ldmnet")


@dataclass(frozen=True)
class Method:
    """One method and its strength.

    Attributes:
        name: one of `METHODS`.
        weight_decay_w: w of eq. (24), w |theta|^2.
        dropout: the rate of the network's DropOut layers.
        mu: weight of the penalty; zero trains without one. "auto" takes a share of the largest that SGD can
            follow, measured on the network before training (see `ldmnet.training.stability`).
        lambda_tilde: strength of the manifold term; zero is the control. "auto" is five times mu.
        mass: form of eq. (19).
        n_neighbors: neighbours a point.
        sigma_neighbor: which neighbour gives the local scale.
        epochs_per_update: the paper's M.
        input_scale: factor on the inputs in the graph's points.
        symmetrize: how W is made symmetric.
        self_weight: W_ii.
        keep_dual: whether Z is kept from one update to the next.
        features: "sweep", or "running" to do without sweeps.
        neighbors: "exact", or "auto" to search large classes approximately.
        within_class: whether neighbours are of the same class; otherwise they are sought among all samples.
    """

    name: str = "none"
    weight_decay_w: float = 0.0
    dropout: float = 0.0
    mu: float | Literal["auto"] = 0.0
    lambda_tilde: float | Literal["auto"] = 0.0
    mass: Mass = "lumped"
    n_neighbors: int = 20
    sigma_neighbor: int = 10
    epochs_per_update: int = 2
    input_scale: float = 1.0
    symmetrize: Symmetrize = "max"
    self_weight: float = 1.0
    keep_dual: bool = True
    features: Literal["sweep", "running"] = "sweep"
    neighbors: SearchKind = "exact"
    within_class: bool = True

    def __post_init__(self) -> None:
        with_python_numbers(self)
        if self.name not in METHODS:
            raise InputError(f"there is no method {self.name!r}. The methods: {', '.join(METHODS)}.")
        if self.weight_decay_w < 0:
            raise InputError(f"weight_decay_w must be zero or above, got {self.weight_decay_w}.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be at least 0 and below 1, got {self.dropout}.")
        for name, strength in (("weight_decay", "weight_decay_w"), ("dropout", "dropout")):
            if self.name == name and getattr(self, strength) == 0:
                raise InputError(f"the method {name} needs {strength} above zero.")
        if self.name in ("ldmnet", "control") and self.mu != "auto" and not self.mu > 0:
            raise InputError(f"the method {self.name} needs mu above zero, got {self.mu}.")
        if self.name == "ldmnet" and self.lambda_tilde == 0:
            raise InputError("the method ldmnet needs lambda_tilde above zero; with the graph off it is the control.")
        if self.name == "none" and self.mu != 0:
            raise InputError(f"the method none has no penalty, but mu is {self.mu}: it is ldmnet, or the control.")
        if self.name == "control" and self.lambda_tilde != 0:
            raise InputError("the control is the loop with the graph switched off: its lambda_tilde is zero.")

    @property
    def torch_weight_decay(self) -> float:
        """What `torch.optim` calls weight_decay: the gradient of w |theta|^2 is 2 w theta."""
        return 2 * self.weight_decay_w

    def as_saved(self, settings: Mapping[str, Any]) -> Method:
        """This method with the numbers of a saved run in place of "auto"."""
        saved = {name: settings.get(name, "auto") for name in ("mu", "lambda_tilde") if getattr(self, name) == "auto"}
        return replace(self, **saved)

    def resolved(self, stable_mu: Callable[[], float]) -> Method:
        """This method with numbers in place of "auto", given what measures the largest stable mu."""
        mu = AUTO_SHARE * stable_mu() if self.mu == "auto" else self.mu
        return replace(
            self, mu=mu, lambda_tilde=mu / AUTO_COUPLING if self.lambda_tilde == "auto" else self.lambda_tilde
        )

    def regularizer(self, inputs: Tensor, labels: Tensor, across: Tensor | None = None) -> ManifoldRegularizer | None:
        """The regulariser of this method for a training set, or None."""
        if self.mu == 0:
            return None
        options = {name: getattr(self, name) for name in SETTINGS if hasattr(self, name)}
        return ManifoldRegularizer(inputs, labels if self.within_class else None, across=across, **options)


def weight_decay(w: float) -> Method:
    """Weight decay of eq. (24)."""
    return Method("weight_decay", weight_decay_w=w)


def dropout(p: float = 0.5) -> Method:
    """DropOut in the network's DropOut layers."""
    return Method("dropout", dropout=p)


def ldmnet(mu: float, lambda_tilde: float, *, mass: Mass = "lumped", input_scale: float = 1.0) -> Method:
    """LDMNet, Algorithm 1."""
    return Method("ldmnet", mu=mu, lambda_tilde=lambda_tilde, mass=mass, input_scale=input_scale)


def control(mu: float) -> Method:
    """LDMNet's loop with the graph off: the target is the features at the last update."""
    return Method("control", mu=mu)
