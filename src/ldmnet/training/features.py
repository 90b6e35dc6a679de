"""Features of a network: captured in the training pass, or swept over a whole data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from ldmnet.errors import InputError

Layer = str | Sequence[str]  # the name of the feature layer, or the names of several, whose outputs are joined


class IndexedDataset(Dataset[tuple[Any, ...]]):
    """A data set that also says which sample it gives: `(index, x, y)`, for `penalty(features, index)`.

    What a sample holds beside x and y comes along.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        sample = self.dataset[index]
        return (index, *sample) if isinstance(sample, tuple | list) else (index, sample)


class FeatureTap:
    """Runs a model once and returns both its output and a named layer's output.

        with FeatureTap(model, "features") as tap:
            logits, features = tap(x)

    Args:
        model: any module.
        layer: a name from `model.named_modules()`, or several: their outputs are then joined, in that order.
    """

    def __init__(self, model: nn.Module, layer: Layer) -> None:
        self._model = model
        self._modules = {name: named_layer(model, name) for name in layer_names(layer)}
        self._seen: dict[str, Tensor] = {}

    def __enter__(self) -> FeatureTap:
        with ExitStack() as hooks:
            for name, module in self._modules.items():
                hook = module.register_forward_hook(partial(self._keep, name))
                hooks.callback(hook.remove)
            self._hooks = hooks.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._hooks.close()
        self._seen.clear()

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The model's output and the layer's, flattened to (b, d_feat), from one forward pass."""
        self._seen.clear()
        out = self._model(x)
        for name in self._modules:
            if name not in self._seen:
                raise InputError(f"the layer {name!r} did not run in the model's forward pass.")
        parts = [self._seen[name].flatten(1) for name in self._modules]
        return out, parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _keep(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise InputError(f"the layer {name!r} gives a {type(output).__name__}, not a tensor.")
        self._seen[name] = output


def layer_names(layer: Layer) -> list[str]:
    """The names of one or several layers."""
    names = [layer] if isinstance(layer, str) else list(layer)
    if not names or len(set(names)) < len(names):
        raise InputError(f"layer must be a layer's name or several different ones, got {layer!r}.")
    return names


def named_layer(model: nn.Module, layer: str) -> nn.Module:
    """The submodule of that name, or a sentence that lists the names there are."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if layer not in modules or layer == "":
        names = ", ".join(name for name in modules if name)
        raise InputError(f"the model has no layer {layer!r}. Its layers: {names}.")
    return modules[layer]


@torch.no_grad()
def sweep(module: nn.Module, inputs: Tensor, *, layer: Layer | None = None, batch_size: int = 500) -> Tensor:
    """The features of a whole data set, in its order.

    Runs in eval mode (DropOut off) and without gradients; the training mode is put back afterwards.

    Args:
        module: the network.
        inputs: (n, ...); batches of them are moved to where the network is.
        layer: a named layer's output, or several layers' side by side, or None for the module's own.
        batch_size: samples a pass.

    Returns:
        (n, d_feat), flattened after the first dimension.
    """
    out: Tensor | None = None
    weight = next(module.parameters(), None)
    with evaluating(module):
        for rows, batch in _passes(inputs, batch_size):
            if weight is not None:
                batch = batch.to(weight.device)
            with torch.inference_mode():
                if layer is None:
                    piece = module(batch).flatten(1)
                else:
                    with FeatureTap(module, layer) as tap:
                        _, piece = tap(batch)
            if out is None:
                out = torch.empty(len(inputs), piece.shape[1], dtype=piece.dtype, device=piece.device)
            out[rows] = piece
    if out is None:
        raise InputError("inputs is empty: there is nothing to sweep.")
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


def _passes(inputs: Tensor, batch_size: int) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(inputs), batch_size):
        rows = slice(start, start + batch_size)
        yield rows, inputs[rows]
