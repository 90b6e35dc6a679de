"""The regularisation methods that are compared, each a frozen set of numbers.

`none`, `weight_decay` (eq. 24), `dropout`, `ldmnet`, and `control`: the same loop as `ldmnet` with the graph
switched off, so that a reader sees what the manifold adds to the proximal pull. `ldmnet` and `control` need no number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from torch import Tensor

from ldmnet.distributed.targets import Sharing
from ldmnet.errors import InputError
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.settings import ManifoldSettings, with_python_numbers

METHODS = ("none", "weight_decay", "dropout", "control", "ldmnet")


@dataclass(frozen=True)
class Method(ManifoldSettings):
    """One method and its numbers; those of LDMNet and the control are `ManifoldSettings`'.

    Without `mu` the graph is built on the features alone, and `input_scale` has no effect.

    Attributes:
        name: one of `METHODS`.
        weight_decay_w: w of eq. (24), w |theta|^2.
        dropout: the rate of the network's DropOut layers.
    """

    name: str = "none"
    weight_decay_w: float = 0.0
    dropout: float = 0.0

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
        for name in ("strength", "coupling", "mu", "lambda_tilde"):
            if (value := getattr(self, name)) is None:
                continue
            if not self.pulls:
                raise InputError(
                    f"the method {self.name} has no {name}, got {value}: it is ldmnet's, or the control's."
                )
            if self.name == "control" and name in ("coupling", "lambda_tilde"):
                raise InputError(f"the control is the loop with the graph switched off: it has no {name}.")
        if self.name == "ldmnet" and (self.lambda_tilde == 0 or self.coupling == math.inf):
            raise InputError("the method ldmnet with the graph switched off is the method control.")
        _ = self.manifold  # which checks the others

    @property
    def pulls(self) -> bool:
        """Whether there is a regulariser."""
        return self.name in ("ldmnet", "control")

    @property
    def torch_weight_decay(self) -> float:
        """What `torch.optim` calls weight_decay: the gradient of w |theta|^2 is 2 w theta."""
        return 2 * self.weight_decay_w

    @property
    def manifold(self) -> ManifoldSettings:
        """The settings of the regulariser: for the control with the graph switched off, and no sweeps if possible."""
        options = {field.name: getattr(self, field.name) for field in fields(ManifoldSettings)}
        options["features"] = self.features or ("running" if self.mu is None else "sweep")
        if self.name == "control":
            options["coupling" if self.mu is None else "lambda_tilde"] = math.inf if self.mu is None else 0.0
        return ManifoldSettings(**options)

    def regularizer(self, inputs: Tensor, labels: Tensor, sharing: Sharing | None = None) -> ManifoldRegularizer | None:
        """The regulariser of this method for a training set, or None; `sharing` is how several processes share it."""
        if not self.pulls:
            return None
        x = None if self.mu is None else inputs
        return ManifoldRegularizer(x, labels, settings=self.manifold, sharing=sharing)
