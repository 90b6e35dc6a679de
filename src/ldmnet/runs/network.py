"""Training a network under a run's watch: the same for a data set by name and for someone's own samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ldmnet.errors import BadEndWarning
from ldmnet.fingerprints import fingerprint, short_hash
from ldmnet.records.snapshots import Points, Trace
from ldmnet.runs.run import Measured, Watch
from ldmnet.training.ensemble import feature_layer, fit_network
from ldmnet.training.features import evaluate
from ldmnet.training.loop import Fit, last_numbers

Pair = tuple[Tensor, Tensor]


def network_hash(make: Callable[[], nn.Module]) -> str:
    """What tells a network from another: its modules, and the names, shapes and initial values of its weights.

    Values count only if they come again: a network may draw them past torch's seed. An edit of `forward` alone is not
    seen.
    """
    first, again = make(), make()
    values = _weights(first, values=True)
    return short_hash([_modules(first), values if values == _weights(again, values=True) else _weights(first)])


def _modules(model: nn.Module) -> list[str]:
    """Names and kinds; the numbers of torch's own only, since others may show what changes from run to run."""
    return [
        f"{name} {type(m).__name__} {m.extra_repr() if type(m).__module__.startswith('torch.nn.') else ''}"
        for name, m in model.named_modules()
    ]


def _weights(model: nn.Module, *, values: bool = False) -> list[str]:
    there = {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor) and not is_lazy(v)}
    return [f"{k} {v.dtype} {fingerprint(v) if values else tuple(v.shape)}" for k, v in there.items()]


def train_network(
    model: nn.Module,
    data: Pair,
    watch: Watch,
    *,
    points: Callable[[], Points],
    judged: Pair | None = None,
    layer: str = "features",
    **how: Any,
) -> Measured:
    """Train, test, and give the fields of a record.

    Args:
        model: with its initial weights.
        data: the training set.
        watch: where the run's files go.
        points: gives the samples whose features are kept, where that is asked for.
        judged: validation data that is looked at once, after training.
        layer: the name of the feature layer.
        how: what `ldmnet.fit` takes besides.
    """
    traced = None
    if watch.snapshots:
        traced = Trace(
            watch.folder, model, points(), epochs=how["settings"].epochs, layer=feature_layer(model, layer), then=watch
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadEndWarning)  # the record has it
        result = fit_network(
            model, data, layer=layer, checkpoint=watch.checkpoint, on_epoch=traced or watch, progress=False, **how
        )
    if traced is not None:
        traced.finish(result)
    watch.keep_log(result)
    return Measured(_numbers(result, judged), result.model)


def _numbers(result: Fit, judged: Pair | None) -> dict[str, Any]:
    validation = None if judged is None else evaluate(result.model, *judged)
    updates = [] if result.regularizer is None else result.regularizer.log
    return {
        "accuracy": None if result.test_accuracy is None else round(100 * result.test_accuracy, 4),
        "test_loss": None if result.test_loss is None else round(result.test_loss, 6),
        "train_loss": round(result.train_loss, 6),
        "val_accuracy": None if validation is None else round(100 * validation[1], 4),
        "val_loss": None if validation is None else round(validation[0], 6),
        "best_epoch": result.best_epoch,
        "loss_curve": [float(f"{e.loss:.4g}") for e in result.history],
        **last_numbers(result),
        "solver": sorted({u.status for u in updates}),
        "ended_badly": [result.ended_badly] if result.ended_badly else [],
        "seconds": {phase: round(spent, 2) for phase, spent in result.seconds.items()},
    }
