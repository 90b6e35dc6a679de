"""The regularisation methods that are compared, each a frozen set of numbers.

`none`, `weight_decay` (eq. 24), `dropout`, `ldmnet`, and `control`: the same loop as `ldmnet` with the graph
switched off, so that a reader sees what the manifold adds to the proximal pull. `ldmnet` and `control` need no number.
What people use besides, `ldmnet.training.rivals`, stands alone or behind one of these and a plus: `ldmnet+mixup`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from torch import Tensor, nn

from ldmnet.errors import InputError
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.settings import ManifoldSettings, with_python_numbers
from ldmnet.training.rival import put_t_vmf_head
from ldmnet.training.rivals import ENSEMBLE, T_VMF, parse

METHODS = ("none", "weight_decay", "dropout", "control", "ldmnet")
CHANGING = ("mixup", "manifold_mixup", "sam")  # after these, what the penalty sees are not a sample's own features


@dataclass(frozen=True)
class Method(ManifoldSettings):
    """One method and its numbers; those of LDMNet and the control are `ManifoldSettings`'.

    Without `mu` the graph is built on the features alone, and `input_scale` has no effect.

    Attributes:
        name: one of `METHODS`, one or more rivals, or both: "ldmnet", "mixup:0.4", "ldmnet+label_smoothing".
        weight_decay_w: w of eq. (24), w |theta|^2.
        dropout: the rate of the network's DropOut layers.
    """

    name: str = "none"
    weight_decay_w: float = 0.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        with_python_numbers(self)
        parse(self.name, METHODS)
        if self.weight_decay_w < 0:
            raise InputError(f"weight_decay_w must be zero or above, got {self.weight_decay_w}.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be at least 0 and below 1, got {self.dropout}.")
        for name, strength in (("weight_decay", "weight_decay_w"), ("dropout", "dropout")):
            if self.base == name and getattr(self, strength) == 0:
                raise InputError(f"the method {name} needs {strength} above zero.")
        for name in ("strength", "coupling", "mu", "lambda_tilde"):
            if (value := getattr(self, name)) is None:
                continue
            if not self.pulls:
                raise InputError(
                    f"the method {self.name} has no {name}, got {value}: it is ldmnet's, or the control's."
                )
            if self.base == "control" and name in ("coupling", "lambda_tilde"):
                raise InputError(f"the control is the loop with the graph switched off: it has no {name}.")
        if self.base == "ldmnet" and (self.lambda_tilde == 0 or self.coupling == math.inf):
            raise InputError("the method ldmnet with the graph switched off is the method control.")
        _ = self.manifold  # which checks the others

    @property
    def base(self) -> str:
        """The one of `METHODS` that is in the name; none where only rivals are."""
        return parse(self.name, METHODS)[0]

    @property
    def rivals(self) -> dict[str, float]:
        """The rivals in the name with their strengths."""
        return parse(self.name, METHODS)[1]

    @property
    def networks(self) -> int:
        """How many networks are trained: those of an ensemble, else one."""
        return int(self.rivals.get(ENSEMBLE, 1))

    @property
    def pulls(self) -> bool:
        """Whether there is a regulariser."""
        return self.base in ("ldmnet", "control")

    def on(self, model: nn.Module) -> nn.Module:
        """The network with the head that the method asks for, put there in place; most ask for none."""
        if T_VMF in self.rivals:
            put_t_vmf_head(model, self.rivals[T_VMF])
        return model

    @property
    def torch_weight_decay(self) -> float:
        """What `torch.optim` calls weight_decay: the gradient of w |theta|^2 is 2 w theta."""
        return 2 * self.weight_decay_w

    @property
    def manifold(self) -> ManifoldSettings:
        """The settings of the regulariser: for the control with the graph switched off, and no sweeps if possible."""
        options = {field.name: getattr(self, field.name) for field in fields(ManifoldSettings)}
        running = self.mu is None and not set(CHANGING) & set(self.rivals)
        options["features"] = self.features or ("running" if running else "sweep")
        if self.base == "control":
            options["coupling" if self.mu is None else "lambda_tilde"] = math.inf if self.mu is None else 0.0
        return ManifoldSettings(**options)

    def regularizer(self, inputs: Tensor, labels: Tensor) -> ManifoldRegularizer | None:
        """The regulariser of this method for a training set, or None."""
        if not self.pulls:
            return None
        return ManifoldRegularizer(None if self.mu is None else inputs, labels, settings=self.manifold)
