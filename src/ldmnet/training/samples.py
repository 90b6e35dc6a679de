"""What `fit` is given to train and report on, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset

from ldmnet.errors import InputError
from ldmnet.graph.groups import UNLABELLED
from ldmnet.training.batches import begins_with_index
from ldmnet.training.features import evaluating, sweep

Data = tuple[Any, Any] | Dataset[Any] | DataLoader[Any]
ClassWeight = Tensor | Literal["balanced"]
ELSEWHERE = "trains in a loop of your own, with ManifoldRegularizer (docs/recipes.md)."  # what fit does not do


def as_tensors(data: Data, name: str, weight: Tensor, *, unlabelled: bool = False) -> tuple[Tensor, Tensor]:
    """`data` as inputs (n, ...) of a weight's kind and int64 labels (n,), on its device, checked.

    Args:
        data: `(inputs, labels)` of tensors, arrays or tables; or a data set of such pairs, or its loader.
        name: what errors call it.
        weight: a parameter of the model.
        unlabelled: whether labels may be -1.
    """
    given = _pairs(data, name) if isinstance(data, Dataset | DataLoader) else data
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"{name} must be (inputs, labels), a data set or a DataLoader, got {_described(given)}.")
    x, y = _tensor(given[0], f"{name}: inputs"), _labels(given[1], name)
    if x.ndim < 2 or len(x) == 0:
        raise InputError(f"{name}: inputs must have shape (n, ...) with n at least 1, got {tuple(x.shape)}.")
    if not x.is_floating_point():
        also = "" if x.dtype == torch.uint8 else f" A network that takes whole numbers, as tokens, {ELSEWHERE}"
        raise InputError(f"{name}: inputs must be floating point, got {x.dtype}. Convert with .float().{also}")
    if y.shape != (len(x),):
        several = y.ndim == 2 and len(y) == len(x) and y.shape[1] > 1
        also = f" fit takes one label per sample; with several, a network {ELSEWHERE}" if several else ""
        raise InputError(f"{name}: there are {len(x)} inputs but labels has shape {tuple(y.shape)}.{also}")
    if not torch.isfinite(x).all():
        raise InputError(f"{name}: inputs has NaN or infinite values.")
    lowest = int(y.min())
    if lowest < (UNLABELLED if unlabelled else 0):
        also = ", or -1 for a sample without a label" if unlabelled else ""
        raise InputError(f"{name}: labels must be 0 or above{also}, got {lowest}.")
    if int(y.max()) == UNLABELLED:
        raise InputError(f"{name}: no sample has a label, every one is -1.")
    return x.to(weight.device, weight.dtype), y.to(weight.device)


def _pairs(data: Dataset[Any] | DataLoader[Any], name: str) -> tuple[Any, Any]:
    """A data set's inputs and labels, read once; a loader gives its data set, in the data set's order."""
    dataset: Any = data.dataset if isinstance(data, DataLoader) else data
    indexed = begins_with_index(dataset)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InputError(f"{name}: a data set must have a length and samples by number, got {_described(dataset)}.")
    samples = [dataset[i] for i in range(len(dataset))]
    if indexed:
        samples = [sample[1:] for sample in samples]
    for i, sample in enumerate(samples):
        if not isinstance(sample, tuple | list) or len(sample) < 2:
            raise InputError(f"{name}: a data set must give pairs (x, y), but its sample {i} is {_described(sample)}.")
        if not indexed and len(sample) > 2 and isinstance(sample[0], int) and sample[0] == i:  # (index, x, y)
            samples[i] = sample[1:]
    if not samples:
        raise InputError(f"{name}: the data set has no samples.")
    inputs = [_tensor(sample[0], f"{name}: inputs") for sample in samples]
    if len({x.shape for x in inputs}) > 1:
        shapes = " and ".join(str(tuple(shape)) for shape in sorted({x.shape for x in inputs})[:2])
        raise InputError(f"{name}: samples must have one shape, got {shapes}. Resize them.")
    return torch.stack(inputs), np.array([np.asarray(sample[1]) for sample in samples])


def _labels(given: Any, name: str) -> Tensor:
    """Labels as int64; words are refused, whole numbers in floating point are taken."""
    if not isinstance(given, Tensor):
        values = np.asarray(given)
        if values.dtype.kind in "OSU" and values.size:
            first = str(values.flat[0])
            raise InputError(
                f"{name}: labels must be whole numbers from 0, got {first!r}. Number the classes, as with "
                "numpy.unique(labels, return_inverse=True)[1], or use ldmnet.integrations.sklearn.LDMClassifier, which "
                "takes labels of any kind."
            )
    y = _tensor(given, f"{name}: labels")
    if y.is_complex() or y.dtype == torch.bool or (y.is_floating_point() and not bool((y == y.round()).all())):
        also = f" fit trains classifiers; for regression a network {ELSEWHERE}" if y.is_floating_point() else ""
        raise InputError(f"{name}: labels must be integers, got {y.dtype}.{also}")
    return y.to(torch.int64)


def _tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(np.require(values, requirements=["C", "W"]) if np.ndim(values) else values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers, got {_described(values)}.") from error


def _described(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")


def loss_weights(y: Tensor, sample_weight: Any = None, class_weight: ClassWeight | None = None) -> Tensor | None:
    """The weight of each sample in the softmax loss, with a mean of one over the labelled; None if all are alike.

    Args:
        y: (n,) labels, -1 where there is none.
        sample_weight: (n,) weights, zero or above.
        class_weight: (n_classes,) weights that multiply them, or "balanced": the inverse of the classes' frequencies.
    """
    device, y = y.device, y.cpu()  # some devices have no double precision
    labelled = y != UNLABELLED
    w = torch.ones(len(y), dtype=torch.float64)
    if sample_weight is not None:
        w = _tensor(sample_weight, "sample_weight").to(w)
        if w.shape != y.shape:
            raise InputError(f"sample_weight has shape {tuple(w.shape)} but there are {len(y)} samples.")
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InputError(f"class_weight must be 'balanced' or one weight per class, got {class_weight!r}.")
        counts = y[labelled].bincount().double()
        w = w * (1 / counts)[y.clamp(min=0)]
    elif class_weight is not None:
        per_class = _tensor(class_weight, "class_weight").to(w)
        if per_class.ndim != 1 or len(per_class) <= int(y.max()):
            raise InputError(
                f"class_weight must have one weight per class, 0 to {int(y.max())}, got {tuple(per_class.shape)}."
            )
        w = w * per_class[y.clamp(min=0)]
    w = torch.where(labelled, w, 0.0)
    if not bool(torch.isfinite(w).all()) or float(w.min()) < 0 or float(w.max()) == 0:
        raise InputError("sample_weight and class_weight must be finite, zero or above, and not all zero.")
    counted = w[labelled]
    return None if bool((counted == counted[0]).all()) else (w / counted.mean()).to(device, torch.float32)


def softmax_loss(
    logits: Tensor, y: Tensor, labelled: int | Tensor, weight: Tensor | None, smoothing: float = 0.0
) -> Tensor:
    """The mean softmax loss of a batch's labelled samples, each times its weight; zero if none has a label.

    Args:
        logits: (b, n_classes).
        y: (b,) labels, -1 where there is none.
        labelled: how many have one.
        weight: (b,), or None for ones.
        smoothing: the share of every target that is spread over all classes.
    """
    if weight is None and isinstance(labelled, int):  # all have one
        return F.cross_entropy(logits, y, label_smoothing=smoothing)
    each = F.cross_entropy(logits, y, ignore_index=UNLABELLED, reduction="none", label_smoothing=smoothing)
    total = each.sum() if weight is None else (each * weight.to(each.dtype)).sum()
    return total / (labelled.clamp(min=1) if isinstance(labelled, Tensor) else labelled)


def move(model: nn.Module, device: str | torch.device) -> None:
    """Move a model to a device, or say why it cannot be."""
    try:
        model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device {device!s} cannot be used: {str(error).splitlines()[0]}") from error


def first_weight(model: nn.Module) -> Tensor:
    """A floating-point parameter: the samples go where it is, in its precision."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    if weight is None:
        raise InputError("the model has no weights: there is nothing to train.")
    return weight


def shape_lazy_weights(model: nn.Module, x: Tensor) -> None:
    """Give weights that wait for a first sample (nn.LazyLinear) their shapes."""
    if any(is_lazy(p) for p in model.parameters()):
        with evaluating(model), torch.no_grad():  # not in inference mode: what is made there has no gradient
            model(x[:1])


@contextmanager
def channels_last(model: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Images (n, c, h, w) and network laid out as convolutions want them, for a while: the same numbers, sooner.

    A network that asks for the usual layout, as one that calls `view` does, keeps it.
    """
    if x.ndim != 4:
        yield x
        return
    laid_out = x.contiguous(memory_format=torch.channels_last)
    try:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        try:
            sweep(model, laid_out[:2])
        except RuntimeError:
            model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            laid_out = x
        yield laid_out
    finally:
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def check_outputs(model: nn.Module, **parts: tuple[Tensor, Tensor] | None) -> None:
    """Find out before training, not after it, whether the model takes the samples and knows the labels."""
    for name, part in parts.items():
        if part is None:
            continue
        outputs, largest = sweep(model, part[0][:1]).shape[1], int(part[1].max())
        if outputs <= largest:
            raise InputError(f"{name}: the label {largest} does not fit a model of {outputs} outputs.")
