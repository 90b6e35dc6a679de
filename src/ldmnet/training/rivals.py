"""Rivals: what people use beside LDMNet, or together with it, each a few lines on the same loop.

    Method("mixup"), Method("ldmnet+mixup"), Method("ldmnet+label_smoothing:0.2+ema")

A rival acts where `Rival` has a method: on the network before training, on a batch, in the loss, as a penalty on the
features, on the gradient, after a step. The number behind a colon is its strength. Strengths that are not given are the
published ones, or near them: nothing here has tuned them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ldmnet.errors import InputError
from ldmnet.saved import check_mapping, refuse
from ldmnet.training.features import Layer, layer_names, named_layer
from ldmnet.training.pulls import OLE, CentreLoss, Laplacian, Shrink, SupervisedContrastive
from ldmnet.training.rival import EMA, SAM, Batch, LabelSmoothing, ManifoldMixup, Mixup, Rival, TvMF


class Kind(NamedTuple):
    """What makes a rival, and the strengths that it can have."""

    make: type[Rival] | None
    strength: float
    low: float  # tuning searches from here
    high: float
    below: float = math.inf  # a strength must be below this


ENSEMBLE, T_VMF = "ensemble", "t_vmf"
KINDS = {
    "label_smoothing": Kind(LabelSmoothing, 0.1, 0.02, 0.4, below=1.0),
    "mixup": Kind(Mixup, 0.2, 0.05, 2.0),
    "manifold_mixup": Kind(ManifoldMixup, 2.0, 0.05, 4.0),
    "sam": Kind(SAM, 0.05, 0.01, 0.5),
    "ema": Kind(EMA, 0.99, 0.9, 0.999, below=1.0),
    "centre": Kind(CentreLoss, 0.01, 0.0003, 0.3),
    "contrastive": Kind(SupervisedContrastive, 1.0, 0.03, 3.0),
    "ole": Kind(OLE, 0.25, 0.01, 1.0),
    T_VMF: Kind(TvMF, 16.0, 1.0, 64.0),
    "laplacian": Kind(Laplacian, 0.01, 0.0003, 0.3),
    "shrink": Kind(Shrink, 0.001, 0.00003, 0.03),
    ENSEMBLE: Kind(None, 5, 5, 5),  # several networks: see `ldmnet.training.ensemble`
}
RIVALS = tuple(KINDS)


def parse(name: str, bases: Sequence[str]) -> tuple[str, dict[str, float]]:
    """A method's name in parts: "ldmnet+mixup:0.4" is ("ldmnet", {"mixup": 0.4}); without a base it is "none"."""
    base, found = "", dict[str, float]()
    for part in str(name).split("+"):
        word, colon, number = part.partition(":")
        if word in bases and not colon and not base:
            base = word
        elif word in KINDS and word not in found:
            found[word] = _strength(word, number) if colon else KINDS[word].strength
        else:
            raise InputError(
                f"there is no method {name!r}. The methods: {', '.join(bases)}; the rivals, alone or behind one of "
                f"these and a plus: {', '.join(KINDS)}."
            )
    if len(mixing := [word for word in found if word.endswith("mixup")]) > 1:
        raise InputError(f"a batch is mixed once: choose one of {', '.join(mixing)}.")
    if base == "none" and found:
        raise InputError(f"the method none has nothing beside it: write {name.replace('none+', '')!r}.")
    return base or "none", found


def _strength(word: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    below = KINDS[word].below
    if not (0 < value < below and math.isfinite(value)) or (word == ENSEMBLE and value != int(value)):
        kind = "a whole number" if word == ENSEMBLE else "a number"
        raise InputError(
            f"the strength of {word} must be {kind} above zero{f' and below {below:g}' if below < math.inf else ''}, "
            f"got {number!r}."
        )
    return value


class Rivals:
    """The rivals of one run, in turn.

    Args:
        strengths: by name.
        draw: what they draw from.
    """

    def __init__(self, strengths: Mapping[str, float], draw: torch.Generator) -> None:
        made = {name: kind.make for name, kind in KINDS.items() if name in strengths}
        self._all = {name: make(strengths[name], draw) for name, make in made.items() if make is not None}
        self._draw = draw
        self._now = Batch(torch.empty(0), torch.empty(0), torch.empty(0))
        self.smoothing = sum(rival.smoothing for rival in self._all.values())

    def __bool__(self) -> bool:
        return bool(self._all)

    def begin(self, model: nn.Module) -> None:
        """Look at the network before the first step."""
        for rival in self._all.values():
            rival.begin(model)

    def batch(self, index: Tensor, x: Tensor, y: Tensor) -> Batch:
        """A batch, changed by each."""
        self._now = Batch(index, x, y)
        for rival in self._all.values():
            self._now = rival.batch(self._now)
        return self._now

    @contextmanager
    def mixing(self, model: nn.Module, layer: Layer) -> Iterator[None]:
        """Mix the last feature layer's output where a batch asks for it; whoever reads it inside sees it unmixed."""
        if "manifold_mixup" not in self._all:
            yield
            return
        module = named_layer(model, layer_names(layer)[-1])
        hook = module.register_forward_hook(lambda _, __, out: self._now.mixed(out) if self._now.hidden else None)
        try:
            yield
        finally:
            hook.remove()

    def penalty(self, features: Tensor, y: Tensor) -> Tensor:
        """The sum of the terms on the features of the labelled samples."""
        total = features.new_zeros(())
        labelled = y >= 0
        if not self._all or not bool(labelled.any()):
            return total
        features, y = features[labelled], y[labelled]
        for rival in self._all.values():
            term = rival.penalty(features, y)
            total = total if term is None else total + term
        return total

    def gradient(self, model: nn.Module, again: Callable[[], Tensor]) -> None:
        """Change the gradient, each in turn."""
        for rival in self._all.values():
            rival.gradient(model, again)

    def stepped(self, model: nn.Module) -> None:
        """Look at the network after a step."""
        for rival in self._all.values():
            rival.stepped(model)

    def judged(self, model: nn.Module) -> nn.Module:
        """The network that is validated, and that training ends with."""
        for rival in self._all.values():
            model = rival.judged(model)
        return model

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; nothing where there are no rivals."""
        kept = {name: rival.state() for name, rival in self._all.items()}
        return {"draw": self._draw.get_state(), **kept} if kept else {}

    def load(self, state: Any) -> None:
        """Take what `state` gave."""
        if not self._all:
            return
        check_mapping("rivals", state, ("draw", *self._all))
        self._draw.set_state(state["draw"])
        for name, rival in self._all.items():
            check_mapping(f"rivals' {name}", state[name])
            if any(not isinstance(value, Tensor) for value in state[name].values()):
                raise refuse(f"rivals' {name}", state[name])
            rival.load(state[name])
