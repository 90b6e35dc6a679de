"""Features of a network: captured in the training pass, or swept over a whole data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from ldmnet.errors import InputError
from ldmnet.training.batches import InOrder, moved, run_on

Layer = str | Sequence[str]  # the name of the feature layer, or the names of several, whose outputs are joined


class FeatureTap:
    """Reads a named layer's output in the model's forward pass, whoever runs it.

        with FeatureTap(model, "features") as tap:
            logits, features = tap(x)  # runs the model once

        with FeatureTap(model, "features") as tap:
            loss = step_of_somebody_else(model, batch)
            features = tap.features()

    Args:
        model: any module.
        layer: a name from `model.named_modules()`, or several: their outputs are then joined, in that order.
    """

    def __init__(self, model: nn.Module, layer: Layer) -> None:
        self._model = uncompiled(model)
        self._modules = {name: named_layer(model, name) for name in layer_names(layer)}
        self._seen: dict[str, Tensor] = {}

    def __enter__(self) -> FeatureTap:
        with ExitStack() as hooks:
            for name, module in self._modules.items():
                hook = module.register_forward_hook(partial(self._keep, name))
                hooks.callback(hook.remove)
            self._hooks = hooks.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()
        self._seen.clear()

    def __call__(self, *args: Any, **named: Any) -> tuple[Any, Tensor]:
        """The model's output and the layer's, flattened to (b, d_feat), from one forward pass."""
        self._seen.clear()
        return self._model(*args, **named), self.features()

    def features(self) -> Tensor:
        """The layer's output in the pass since the last call, flattened to (b, d_feat)."""
        for name in self._modules:
            if name not in self._seen:
                raise InputError(
                    f"the layer {name!r} did not run in the model's forward pass, or ran compiled (torch.compile), "
                    "where its output cannot be read: train the model uncompiled."
                )
        parts = [self._seen[name].flatten(1) for name in self._modules]
        self._seen.clear()
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _keep(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        self._seen[name] = _samples(output, f"the layer {name!r}", "Name a layer inside it or after it that does.")


def _samples(output: Any, whose: str, remedy: str) -> Tensor:
    """An output, if it is a tensor (b, ...)."""
    if not isinstance(output, Tensor):
        raise InputError(f"{whose} gives a {type(output).__name__}, not a tensor. {remedy}")
    if output.ndim < 2:
        raise InputError(f"{whose} gives shape {tuple(output.shape)}, not features (b, ...). {remedy}")
    return output


def layer_names(layer: Layer) -> list[str]:
    """The names of one or several layers."""
    names = [layer] if isinstance(layer, str) else list(layer) if isinstance(layer, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        got = repr(layer) if isinstance(layer, str | Sequence) else f"a {type(layer).__name__}"
        raise InputError(f"layer must be a layer's name or several different ones, got {got}.")
    return names


def uncompiled(model: nn.Module) -> nn.Module:
    """The module that `torch.compile` was given, with the same weights: in a compiled one no layer can be read."""
    return getattr(model, "_orig_mod", model)


def named_layer(model: nn.Module, layer: str) -> nn.Module:
    """The submodule of that name, or a sentence that lists the names there are."""
    modules: dict[str, nn.Module] = dict(uncompiled(model).named_modules())
    if layer not in modules or layer == "":
        names = ", ".join(name for name in modules if name)
        remedy = " Choose the one that gives the features as `layer`." if names else ""
        raise InputError(f"the model has no layer {layer!r}. Its layers: {names or 'none'}.{remedy}")
    return modules[layer]


@torch.no_grad()  # not inference_mode: what a module makes and keeps in its first pass must serve training too
def sweep(
    model: nn.Module,
    data: Tensor | Dataset[Any] | DataLoader[Any],
    *,
    layer: Layer | None = None,
    batch_size: int = 500,
    forward: Callable[[Any, Any], Any] | None = None,
) -> Tensor:
    """The features of a whole data set, in its order.

    Runs in eval mode (DropOut off) and without gradients; the training mode is put back afterwards. Only the features
    are kept, so that a data set may be larger than the memory.

    What of a batch reaches the network: a tensor as it is; of several items the first, or the one after the index of an
    `IndexedDataset`; of a batch by name everything but labels, as keyword arguments. For any other batch say it:
    `forward=lambda model, batch: model(batch["image"])`.

    Args:
        model: the network.
        data: (n, ...), a data set, or a DataLoader: its data set is then read from the first sample to the last with
            the loader's workers, collation and batch size, and without its sampler. Batches are moved to where the
            network is. Where samples are augmented at random, pass the data set without augmentation.
        layer: a named layer's output, or several layers' side by side, or None for the model's own.
        batch_size: samples per pass where `data` is no loader.
        forward: runs the model on a batch, which is whole and on the network's device; without a `layer`, what it
            returns are the features.

    Returns:
        (n, d_feat), flattened after the first dimension.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got a {type(model).__name__}.")
    model = model if layer is None else uncompiled(model)
    samples, tap = InOrder(data, batch_size), None if layer is None else FeatureTap(model, layer)
    place = next(chain(model.parameters(), model.buffers()), None)
    out: Tensor | None = None
    done = 0
    with evaluating(model), tap or nullcontext():
        for batch in samples:
            if place is not None:
                batch = moved(batch, place.device)
            result = run_on(model, samples.inputs(batch)) if forward is None else forward(model, batch)
            if tap is not None:
                piece = tap.features()
            else:
                piece = _samples(result, "the model", "Name a layer that does: layer=...").flatten(1)
            if out is None:
                out = torch.empty(len(samples), piece.shape[1], dtype=piece.dtype, device=piece.device)
            if piece.shape[1] != out.shape[1]:
                raise InputError(
                    f"one batch has {out.shape[1]} features per sample and another {piece.shape[1]}. Name a layer "
                    "whose output has one size, or pad all samples to one length."
                )
            if done + len(piece) <= len(samples):
                out[done : done + len(piece)] = piece
            done += len(piece)
    if out is None or done != len(samples):
        raise InputError(
            f"the model gave {done} rows of features for {len(samples)} samples: one per sample is needed."
        )
    return out


@torch.no_grad()
def evaluate(model: nn.Module, inputs: Tensor, labels: Tensor, *, batch_size: int = 500) -> tuple[float, float]:
    """The mean softmax loss and the accuracy (0 to 1) of a classifier in eval mode."""
    logits = sweep(model, inputs, batch_size=batch_size).float()
    labels = labels.to(logits.device)
    return float(F.cross_entropy(logits, labels)), float((logits.argmax(1) == labels).double().mean())


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode for a while; every submodule then gets its own mode back."""
    modes = {m: m.training for m in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for m, mode in modes.items():
            m.training = mode
