"""A Lightning callback that adds the penalty to any LightningModule. Needs the extra `lightning`.

    callback = ManifoldCallback(x, y, mu=0.01, lambda_tilde=0.05)
    loader = DataLoader(IndexedDataset(TensorDataset(x, y)), batch_size=100, shuffle=True)
    Trainer(callbacks=[callback]).fit(module, loader)

The module stays as it is: its `training_step` gets `(x, y)`. The callback takes the index off the batch, reads the
feature layer in the same forward pass and adds the penalty to the loss that comes back, so that precision and
gradient accumulation treat the sum as they treat any loss.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ldmnet.errors import InputError, missing_extra
from ldmnet.integrations.tapping import step_is_missing, tapped
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.training.features import named_layer, sweep

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise missing_extra("lightning", "lightning") from error


class ManifoldCallback(Callback):
    """LDMNet in Lightning's training loop.

    Args:
        inputs: the whole training set, (n, ...), in the order that the index counts.
        groups: (n,) class labels, or None for one graph over all.
        layer: the name of the module's feature layer.
        settings: `mu`, `lambda_tilde` and what else `ManifoldRegularizer` takes.

    Attributes:
        regularizer: made when training starts, on the module's device.
    """

    regularizer: ManifoldRegularizer

    def __init__(
        self, inputs: Tensor, groups: Tensor | None = None, *, layer: str = "features", **settings: Any
    ) -> None:
        self.inputs = torch.as_tensor(inputs)
        self.groups = groups
        self.layer = layer
        self.settings = settings
        self._saved: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Build the regulariser and put the penalty behind `training_step`."""
        if not pl_module.automatic_optimization:
            raise InputError(
                "ManifoldCallback adds the penalty to the loss that training_step returns, and under manual "
                "optimisation it returns none. Use ManifoldRegularizer in training_step itself (the guide to your own "
                "loop shows how)."
            )
        named_layer(pl_module, self.layer)
        self.inputs = self.inputs.to(pl_module.device)
        self.regularizer = ManifoldRegularizer(self.inputs, self.groups, **self.settings)
        if self._saved is not None:
            self.regularizer.load_state_dict(self._saved)
            self._saved = None
        plain = pl_module.training_step

        @functools.wraps(plain)  # Lightning looks at what it takes
        def training_step(batch: Any, *args: Any, **kwargs: Any) -> Any:
            index, rest = _split(batch)
            with tapped(pl_module, self.layer) as features:
                out = plain(rest, *args, **kwargs)
                if out is None:  # Lightning's word for "skip this batch"
                    return None
                penalty = self.regularizer.penalty(features(), index)
            return {**out, "loss": out["loss"] + penalty} if isinstance(out, Mapping) else out + penalty

        pl_module.training_step = training_step

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Dual step, graph and alpha, every `epochs_per_update` epochs."""
        if step_is_missing(self.regularizer, trainer.current_epoch):
            precision = trainer.precision_plugin
            with precision.forward_context():
                features = sweep(pl_module, precision.convert_input(self.inputs), layer=self.layer)
            self.regularizer.step(features)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the module its own `training_step` back."""
        pl_module.__dict__.pop("training_step", None)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Also after an error."""
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        """The regulariser's state, for Lightning's checkpoints."""
        return self.regularizer.state_dict() if hasattr(self, "regularizer") else self._saved or {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a checkpoint's state until training starts."""
        self._saved = state_dict or None


def _split(batch: Any) -> tuple[Tensor, list[Any]]:
    """A batch's index, and the rest of it."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise InputError(
            f"ManifoldCallback needs batches (index, ...), got a {type(batch).__name__}. Wrap the training set: "
            "DataLoader(IndexedDataset(dataset))."
        )
    index, *rest = batch
    if not isinstance(index, Tensor) or index.ndim != 1 or index.is_floating_point():
        found = f"{index.dtype} {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise InputError(
            f"ManifoldCallback needs batches (index, ...) that begin with whole numbers (b,), got {found}. Wrap the "
            "training set: DataLoader(IndexedDataset(dataset))."
        )
    return index, rest
