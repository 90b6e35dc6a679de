"""A Lightning callback that adds the penalty to any LightningModule. Needs the extra `lightning`.

    loader = DataLoader(IndexedDataset(dataset), batch_size=100, shuffle=True)
    Trainer(callbacks=[ManifoldCallback(layer="network.features")]).fit(module, loader)

The module stays as it is: its `training_step` gets `(x, y)`. The callback takes the index off the batch, reads the
feature layer in the same forward pass and adds the penalty to the loss that comes back, so that precision and
gradient accumulation treat the sum as they treat any loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ldmnet.distributed.launch import same_buffers
from ldmnet.distributed.travel import Share
from ldmnet.errors import InputError, missing_extra
from ldmnet.integrations.updating import step_is_missing
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.training.batches import InOrder, run_on
from ldmnet.training.divergence import tell_unused
from ldmnet.training.features import FeatureTap, named_layer, sweep

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DDPStrategy
except ImportError as error:
    raise missing_extra("lightning", "lightning") from error


class ManifoldCallback(Callback):
    """LDMNet in Lightning's training loop.

    The penalty is logged as the epoch's mean, `ldmnet/penalty`, and every update's numbers beside it, as `ldmnet/move`.

    Args:
        inputs: the whole training set, (n, ...), in the order that the index counts: the graph is built on inputs and
            features. None reads the trainer's training loader, and builds the graph on the features alone.
        groups: (n,) class labels. None takes the second item of every sample, if they are whole numbers and `inputs` is
            None, which reads the data set once more; otherwise there is one graph over all.
        layer: the name of the module's feature layer.
        forward: runs the module on a batch without its index, for the sweep; unless given, the module's own `forward`
            gets the batch's first item, or a batch by name without its labels.
        settings: what `ManifoldRegularizer` takes by name, as `strength`, or `mu` and `lambda_tilde`.

    Attributes:
        regularizer: made when training starts.
    """

    regularizer: ManifoldRegularizer

    def __init__(
        self,
        inputs: Tensor | None = None,
        groups: Any = None,
        *,
        layer: str = "features",
        forward: Callable[[Any, Any], Any] | None = None,
        **settings: Any,
    ) -> None:
        self.inputs = None if inputs is None else torch.as_tensor(inputs)
        self.groups = groups
        self.layer = layer
        self.forward = forward
        self.settings = settings
        self._saved: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Build the regulariser, and put the penalty behind `training_step`."""
        if not pl_module.automatic_optimization:
            raise InputError(
                "ManifoldCallback adds the penalty to the loss that training_step returns, and under manual "
                "optimisation it returns none. Use ManifoldRegularizer in training_step itself (the guide to your own "
                "loop shows how)."
            )
        if self.forward is None and type(pl_module).forward is LightningModule.forward:
            raise InputError(
                f"{type(pl_module).__name__} has no forward, which the sweep calls. Write one, or say what runs: "
                "ManifoldCallback(forward=lambda module, batch: module.network(batch[0]))."
            )
        if trainer.world_size > 1 and not isinstance(trainer.strategy, DDPStrategy):
            raise InputError(
                f"ManifoldCallback works with the strategy 'ddp', where every process has the whole model, got "
                f"{type(trainer.strategy).__name__}."
            )
        named_layer(pl_module, self.layer)
        if self.inputs is not None:
            self.inputs = self.inputs.to(pl_module.device)
            self._start(ManifoldRegularizer(self.inputs, self.groups, **self.settings))
        plain = pl_module.training_step

        @functools.wraps(plain)  # Lightning looks at what it takes
        def training_step(batch: Any, *args: Any, **kwargs: Any) -> Any:
            index, rest = _split(batch)
            with FeatureTap(pl_module, self.layer) as tap:
                out = plain(rest, *args, **kwargs)
                if out is None:  # Lightning's word for "skip this batch"
                    return None
                penalty = self.regularizer.penalty(tap.features(), index)
            told: dict[str, Any] = {"on_step": False, "on_epoch": True, "sync_dist": trainer.world_size > 1}
            pl_module.log("ldmnet/penalty", penalty.detach(), batch_size=len(index), **told)
            return {**out, "loss": out["loss"] + penalty} if isinstance(out, Mapping) else out + penalty

        pl_module.training_step = training_step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Build the regulariser, if that needed the trainer's loader."""
        if self.inputs is None:
            samples = InOrder(_loader(trainer))
            groups = _labels(samples) if self.groups is None else self.groups
            self._start(ManifoldRegularizer(None, groups, **self.settings))

    def _start(self, regularizer: ManifoldRegularizer) -> None:
        if self._saved is not None:
            regularizer.load_state_dict(self._saved)
            self._saved = None
        self.regularizer = regularizer

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Dual step, graph and alpha, every `epochs_per_update` epochs."""
        if step_is_missing(self.regularizer, trainer.current_epoch):
            update = self.regularizer.step(self._swept(trainer, pl_module))
            numbers = {name: value for name, value in update.scalars().items() if name != "ldmnet/penalty"}
            pl_module.log_dict(numbers, sync_dist=trainer.world_size > 1)

    def _swept(self, trainer: Trainer, pl_module: LightningModule) -> Tensor | Share:
        precision, run = trainer.precision_plugin, self.forward or run_on

        def forward(module: Any, batch: Any) -> Any:
            return run(module, precision.convert_input(batch if self.inputs is not None else _split(batch)[1]))

        data = _loader(trainer) if self.inputs is None else self.inputs
        same_buffers(pl_module)
        with precision.forward_context():
            return sweep(pl_module, data, layer=self.layer, forward=forward)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave what all processes saw to the first, which writes the checkpoint."""
        self.regularizer.pool()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell if the pull never began."""
        if trainer.is_global_zero:
            tell_unused(self.regularizer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the module its own `training_step` back, and forget a checkpoint that was loaded for no training."""
        pl_module.__dict__.pop("training_step", None)
        self._saved = None

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


def _loader(trainer: Trainer) -> DataLoader[Any]:
    """The training loader, if there is one."""
    loader = trainer.train_dataloader
    if not isinstance(loader, DataLoader):
        raise InputError(
            f"ManifoldCallback reads the training set from one DataLoader, got a {type(loader).__name__}. Pass the "
            "training set: ManifoldCallback(inputs, groups)."
        )
    return loader


def _labels(samples: InOrder) -> Tensor | None:
    """The second item of every sample, or None where it is no whole number."""
    found = []
    for batch in samples:
        index, rest = _split(batch)
        second = rest[1] if len(rest) > 1 else None
        if not isinstance(second, Tensor) or second.is_floating_point() or second.numel() != len(index):
            return None
        found.append(second.flatten())
    return torch.cat(found)
