"""A Trainer of Hugging Face's transformers with the penalty in its loss. Needs the extra `transformers`.

    trainer = ManifoldTrainer(model, args, train_dataset=rows, layer="pre_classifier")

`ManifoldMixin` does the same for a Trainer of one's own: `class Mine(ManifoldMixin, MyTrainer)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ldmnet.distributed.launch import same_buffers
from ldmnet.distributed.travel import Share
from ldmnet.errors import InputError, StateError, missing_extra
from ldmnet.files import written_whole
from ldmnet.integrations.updating import step_is_missing
from ldmnet.regularizer import ManifoldRegularizer
from ldmnet.training.batches import INDEX
from ldmnet.training.divergence import tell_unused
from ldmnet.training.features import FeatureTap, named_layer, sweep

try:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
except ImportError as error:
    raise missing_extra("transformers with accelerate", "transformers") from error

STATE = "ldmnet.pt"


class ManifoldMixin:
    """The penalty for a `Trainer`; it stands before the Trainer among a class's bases.

    Args:
        args: what the Trainer takes.
        layer: the name of the model's feature layer; its output is one tensor.
        settings: what `ManifoldRegularizer` takes by name, as `strength`, or `mu` and `lambda_tilde`.
        inputs: (n, ...) numbers that stand for the samples in the graph; None builds it on the features alone.
        groups: (n,) classes; unless given, the rows' "labels" or "label".
        options: what the Trainer takes by name.

    Every update's numbers are logged as `ldmnet/...`, where the Trainer's own go.

    Attributes:
        regularizer: made when training starts.
    """

    regularizer: ManifoldRegularizer

    def __init__(
        self: Any,
        *args: Any,
        layer: str,
        settings: Mapping[str, Any] | None = None,
        inputs: Tensor | None = None,
        groups: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise InputError(
                "ManifoldTrainer works with DistributedDataParallel, where every process has the whole model, not with "
                "FSDP or DeepSpeed."
            )
        named_layer(self.model, layer)
        self.layer = layer
        self.model_accepts_loss_kwargs = False  # a mean over the batch, which accumulation divides like the penalty
        self._settings = dict(settings or {})
        self.add_callback(_Updates(self))
        if self.train_dataset is None:  # to evaluate only
            return
        self._inputs = None if inputs is None else torch.as_tensor(inputs, device=self.args.device)
        self._groups = _labels(self.train_dataset) if groups is None else groups
        self.train_dataset = _IndexedRows(self.train_dataset)
        self.data_collator = _IndexedCollator(self.data_collator)

    def train(self: Any, resume_from_checkpoint: str | bool | None = None, **options: Any) -> Any:
        """Train as the Trainer does; a checkpoint brings the regulariser's state with it."""
        if self.train_dataset is None:
            raise InputError("there is nothing to train on: pass train_dataset=.")
        self.regularizer = ManifoldRegularizer(self._inputs, self._groups, **self._settings)
        if resume_from_checkpoint:
            last = resume_from_checkpoint is True
            folder = get_last_checkpoint(self.args.output_dir) if last else resume_from_checkpoint
            path = Path(str(folder or self.args.output_dir)) / STATE
            if not path.exists():
                raise StateError(f"{path} is missing: the checkpoint was not written by a ManifoldTrainer.")
            self.regularizer.load_state_dict(torch.load(path, weights_only=True, map_location=self.args.device))
        trained = super().train(resume_from_checkpoint, **options)  # type: ignore[misc]
        if self.is_world_process_zero():
            tell_unused(self.regularizer)
        return trained

    def compute_loss(self: Any, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **rest: Any) -> Any:
        """The Trainer's loss, plus the penalty when training."""
        index = inputs.pop(INDEX, None)
        if index is None and model.training:
            raise InputError(
                f"a batch came without {INDEX}. Do not change the Trainer's data set or collator afterwards."
            )
        if index is None or not model.training:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **rest)  # type: ignore[misc]
        with FeatureTap(self.model, self.layer) as tap:
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **rest)  # type: ignore[misc]
            penalty = self.regularizer.penalty(tap.features(), index)
        if self.compute_loss_func is not None:  # whose loss the Trainer does not divide
            penalty = penalty / self.current_gradient_accumulation_steps
        return (loss + penalty, outputs) if return_outputs else loss + penalty

    def swept_features(self: Any) -> Tensor | Share:
        """The features of the training set in eval mode, in its order; of several processes, each has its part."""

        def forward(model: Any, batch: Any) -> Any:
            inputs = self._prepare_inputs(batch)
            return model(**{name: value for name, value in inputs.items() if name != INDEX})

        loader = self.get_test_dataloader(self.train_dataset)  # that for evaluation would be kept
        same_buffers(self.model)
        return sweep(self.model, loader, layer=self.layer, forward=forward)

    def _save_checkpoint(self: Any, model: Any, trial: Any, *args: Any, **options: Any) -> None:
        """The Trainer's checkpoint, and the regulariser's state in it."""
        super()._save_checkpoint(model, trial, *args, **options)  # type: ignore[misc]
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:
            with written_whole(folder / STATE) as place:
                torch.save(self.regularizer.state_dict(), place)

    def _set_signature_columns_if_needed(self: Any) -> None:
        """Keeps the index among the columns that reach `compute_loss`."""
        super()._set_signature_columns_if_needed()  # type: ignore[misc]
        if INDEX not in self._signature_columns:
            self._signature_columns.append(INDEX)


class ManifoldTrainer(ManifoldMixin, Trainer):
    """`transformers.Trainer` with LDMNet's penalty; see `ManifoldMixin`."""


class _Updates(TrainerCallback):
    """Steps the regulariser before an epoch, and logs the update."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        regularizer: ManifoldRegularizer = self._trainer.regularizer
        if step_is_missing(regularizer, int(state.epoch + 1e-6)):
            self._trainer.log(regularizer.step(self._trainer.swept_features()).scalars())

    def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self._trainer.regularizer.pool()  # before a checkpoint, which the first process writes


class _IndexedRows(Dataset[dict[str, Any]]):
    """A data set of rows by name, each with its number."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self._rows[index], INDEX: index}


class _IndexedCollator:
    """A collator that takes the rows' numbers past another one, which may keep what it knows only."""

    def __init__(self, collate: Any) -> None:
        self._collate = collate

    def __call__(self, rows: list[Any]) -> Any:
        if not rows or not isinstance(rows[0], Mapping) or INDEX not in rows[0]:
            return self._collate(rows)
        batch = self._collate([{key: value for key, value in row.items() if key != INDEX} for row in rows])
        batch[INDEX] = torch.tensor([row[INDEX] for row in rows])
        return batch


def _labels(rows: Any) -> Tensor:
    first = rows[0]
    key = next((key for key in ("labels", "label") if key in first), None)
    if key is None:
        raise InputError(f"the rows have {', '.join(first)} and no labels. Pass groups=, the class of every row.")
    try:
        labels = [(int(label), float(label)) for label in (rows[i][key] for i in range(len(rows)))]
        if any(whole != label for whole, label in labels):
            raise ValueError("a fraction")
        return torch.as_tensor([whole for whole, _ in labels])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"a row's {key} are not one whole number. Pass groups=, the class of every row.") from error
