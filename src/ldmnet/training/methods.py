"""The regularisation methods that are compared, each a frozen set of numbers.

`none`, `weight_decay` (eq. 24), `dropout`, `ldmnet`, and `control`: the same loop as `ldmnet` with the graph
switched off, so that a reader sees what the manifold adds to the proximal pull. `ldmnet` and `control` need no number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from torch import Tensor

from ldmnet.errors import InputError
from ldmnet.graph.neighbors import SearchKind
from ldmnet.graph.weights import Symmetrize
from ldmnet.pim.system import Mass
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.strength import ManifoldSettings, check_strengths
from ldmnet.training.settings import with_python_numbers

METHODS = ("none", "weight_decay", "dropout", "control", "ldmnet")


@dataclass(frozen=True)
class Method:
    """One method and its strength; what LDMNet and the control take is explained at `ManifoldSettings`.

    Attributes:
        name: one of `METHODS`.
        weight_decay_w: w of eq. (24), w |theta|^2.
        dropout: the rate of the network's DropOut layers.
        strength: weight of the pull, without a unit; None takes the default.
        coupling: the pull over the graph, without a unit; None takes the default.
        mu: the paper's weight of the penalty, in place of `strength`.
        lambda_tilde: the paper's strength of the manifold term, in place of `coupling`; the control has none.
        mass: form of eq. (19).
        n_neighbors: neighbours per point.
        sigma_neighbor: which neighbour gives the local scale.
        epochs_per_update: the paper's M.
        input_scale: factor on the inputs in the graph's points, where mu is given; without it, the graph is built on
            the features alone.
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
    strength: float | None = None
    coupling: float | None = None
    mu: float | None = None
    lambda_tilde: float | None = None
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
        if self.pulls:
            self._check_pull()
        else:
            for name in ("strength", "coupling", "mu", "lambda_tilde"):
                if (value := getattr(self, name)) is not None:
                    raise InputError(
                        f"the method {self.name} has no {name}, got {value}: it is ldmnet's, or the control's."
                    )

    def _check_pull(self) -> None:
        if self.name == "control":
            for name in ("coupling", "lambda_tilde"):
                if getattr(self, name) is not None:
                    raise InputError(f"the control is the loop with the graph switched off: it has no {name}.")
            check_strengths(self.strength, None, self.mu, None if self.mu is None else 0.0)
            return
        check_strengths(self.strength, self.coupling, self.mu, self.lambda_tilde)
        if self.lambda_tilde == 0 or self.coupling == math.inf:
            raise InputError("the method ldmnet with the graph switched off is the method control.")

    @property
    def pulls(self) -> bool:
        """Whether there is a regulariser."""
        return self.name in ("ldmnet", "control")

    @property
    def torch_weight_decay(self) -> float:
        """What `torch.optim` calls weight_decay: the gradient of w |theta|^2 is 2 w theta."""
        return 2 * self.weight_decay_w

    def regularizer(self, inputs: Tensor, labels: Tensor, across: Tensor | None = None) -> ManifoldRegularizer | None:
        """The regulariser of this method for a training set, or None."""
        if not self.pulls:
            return None
        mine = {field.name for field in fields(self)}
        options = {field.name: getattr(self, field.name) for field in fields(ManifoldSettings) if field.name in mine}
        if self.name == "control":
            options |= {"coupling": math.inf} if self.mu is None else {"lambda_tilde": 0.0}
        return ManifoldRegularizer(
            None if self.mu is None else inputs, labels if self.within_class else None, across=across, **options
        )
