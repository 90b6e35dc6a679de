"""What a step of training descends: the softmax loss and the penalty of one batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ldmnet.training.features import FeatureTap
from ldmnet.training.rival import Batch, Rows
from ldmnet.training.samples import softmax_loss
from ldmnet.training.state import Run


def objective(run: Run, tap: FeatureTap, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
    """A batch's scores, its softmax loss and, where there is a regulariser or a rival, its penalty."""
    with run.autocast():
        logits, features = tap(batch.x)
    logits = logits.to(torch.promote_types(run.x.dtype, torch.float32))
    labelled = len(batch.y) if run.all_labelled else (batch.y >= 0).sum()

    def loss(rows: Rows) -> Tensor:
        weight = None if run.weights is None else run.weights[batch.index[rows]]
        return softmax_loss(logits, batch.y[rows], labelled, weight, run.rivals.smoothing)

    def penalty(rows: Rows) -> Tensor:
        f = features[rows] if batch.hidden else features  # mixed after they were read: they are still their samples'
        pull = f.new_zeros(()) if run.regularizer is None else run.regularizer.penalty(f, batch.index[rows])
        return pull + run.rivals.penalty(f.to(logits), batch.y[rows]) if run.rivals else pull

    some = run.regularizer is not None or run.rivals
    pulled = batch.purity * batch.weighed(penalty) if some else None  # an even mixture has no place of its own
    return logits, batch.weighed(loss), pulled


def total_loss(run: Run, tap: FeatureTap, batch: Batch) -> Tensor:
    """The loss that a step descends, in a forward pass of its own."""
    _, loss, penalty = objective(run, tap, batch)
    return loss if penalty is None else loss + penalty
