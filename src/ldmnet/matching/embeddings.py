"""Embeddings that bring two modalities of a person together, each learnt from the training people alone.

    learned = learn(x, identity, EmbeddingSettings(method=Method("ldmnet", mu=1, lambda_tilde=5)), seed=0)
    result = identify(learned.embed(probes), probe_identity, learned.embed(gallery), gallery_identity)

`pca` reduces; `low_rank` and `triplet` learn a map; `network` is the paper's two-layer network with a softmax over the
training people and any of the methods of `ldmnet.fit`. Neighbours are searched within a person, in both modalities or
only in the other one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

from ldmnet.errors import DivergenceError, InputError
from ldmnet.matching.low_rank import low_rank_map
from ldmnet.matching.triplet import fit_triplet
from ldmnet.networks import Initialization, embedding_net, initialize
from ldmnet.training.features import evaluating, sweep
from ldmnet.training.history import Epoch
from ldmnet.training.loop import fit
from ldmnet.training.methods import Method
from ldmnet.training.progress import OnEpoch
from ldmnet.training.settings import TrainSettings

Kind = Literal["pca", "low_rank", "triplet", "network"]
METHODS = (
    "pca", "triplet", "low_rank", "none", "weight_decay", "dropout", "control", "ldmnet", "ldmnet_tuned",
)  # fmt: skip


def face_training(epochs: int = 200, lr: float = 0.1) -> TrainSettings:
    """Section 4.3: SGD in batches of 100, the learning rate times 0.99 every epoch."""
    return TrainSettings(epochs=epochs, lr=lr, lr_decay=0.99, lr_drop_after=1.0, checkpoint_every=50)


@dataclass(frozen=True)
class EmbeddingSettings:
    """Everything that decides an embedding, its seed aside.

    Attributes:
        kind: "pca", "low_rank", "triplet" or "network".
        method: the regularisation of a network.
        train: SGD's numbers for a network or a triplet embedding.
        width: of both layers of the network.
        init: of its weights.
        dimensions: PCA keeps so many, or fewer if there are fewer; low_rank works within them.
        margin: of the triplets.
        steps: subgradient steps of low_rank.
        step_size: of the first of them.
        layers: of the network, that are regularised together; "features" is the last one.
    """

    kind: Kind = "network"
    method: Method = field(default_factory=Method)
    train: TrainSettings = field(default_factory=face_training)
    width: int = 2000
    init: Initialization = "xavier"
    dimensions: int = 2000
    margin: float = 0.2
    steps: int = 100
    step_size: float = 0.1
    layers: tuple[str, ...] = ("features",)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"there is no embedding {self.kind!r}. The kinds: {', '.join(get_args(Kind))}.")
        for name in ("width", "dimensions"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not self.margin > 0:
            raise InputError(f"margin must be above zero, got {self.margin}.")


@dataclass(frozen=True, eq=False)
class Learned:
    """An embedding and how it came about.

    Attributes:
        embed: from (n, d) inputs to (n, d_feat) features.
        loss_curve: the loss or objective after every epoch or step.
        seconds: by phase.
        diverged: why training ended early, if it did: the embedding is then the last good one, or untrained.
    """

    embed: Callable[[Tensor], Tensor]
    loss_curve: list[float]
    seconds: dict[str, float]
    diverged: str = ""


def learn(
    x: Tensor,
    identity: Tensor,
    settings: EmbeddingSettings | None = None,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> Learned:
    """Learn an embedding from training samples of both modalities.

    Args:
        x: (n, d) floating point, of norm about 1.
        identity: (n,) whose they are, whole numbers.
        settings: the paper's network without a regulariser unless given.
        seed: of the initial weights, the batches and DropOut.
        checkpoint: where a network that is cut goes on from.
        on_epoch: called after every epoch of SGD.
    """
    settings = settings or EmbeddingSettings()
    if x.ndim != 2 or not x.is_floating_point() or identity.shape != (len(x),):
        raise InputError(
            f"x must be floating point (n, d) and identity (n,), got {x.dtype} {tuple(x.shape)} and "
            f"{tuple(identity.shape)}."
        )
    people, label = torch.unique(identity, return_inverse=True)
    if len(people) < 2:
        raise InputError(f"an embedding needs images of at least two people, got {len(people)}.")
    started = time.perf_counter()
    if settings.kind == "pca":
        embed = pca(x, settings.dimensions)
        return Learned(embed, [], {"train": time.perf_counter() - started})
    if settings.kind == "low_rank":
        reduce = pca(x, settings.dimensions)
        T, objective = low_rank_map(reduce(x), label, steps=settings.steps, step_size=settings.step_size)
        return Learned(lambda y: reduce(y) @ T.T, objective, {"train": time.perf_counter() - started})
    model = embedding_net(x.shape[1], len(people), settings.width).to(x)
    initialize(model, settings.init, seed)
    train, diverged = replace(settings.train, seed=seed), ""
    history: list[Epoch] = []

    def keep(epoch: Epoch) -> None:
        history.append(epoch)
        if on_epoch is not None:
            on_epoch(epoch)

    seconds = {}
    try:
        if settings.kind == "triplet":
            seconds = fit_triplet(model.features, x, label, margin=settings.margin, settings=train, on_epoch=keep)
        else:
            result = fit(
                model,
                (x, label),
                method=settings.method,
                settings=train,
                layer=settings.layers,
                checkpoint=checkpoint,
                on_epoch=keep,
            )
            history, seconds = result.history, result.seconds
    except DivergenceError as error:
        diverged = error.why  # its checkpoint will be gone
        if not bool(torch.isfinite(sweep(model.features, x)).all()):
            initialize(model, settings.init, seed)  # the weights have run away: untrained is the last good state
    return Learned(
        lambda y: sweep(model.features, y),
        [float(f"{epoch.loss:.4g}") for epoch in history],
        seconds or {"train": time.perf_counter() - started},
        diverged,
    )


def pca(x: Tensor, dimensions: int) -> Callable[[Tensor], Tensor]:
    """The projection on the first principal components of x (n, d), in float64; as many as there are at most."""
    mean = x.double().mean(0)
    centred = x.double() - mean
    wide = len(x) < x.shape[1]
    values, vectors = torch.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
    values, vectors = values.flip(0)[:dimensions], vectors.flip(1)[:, :dimensions]
    kept = values > 1e-10 * values[0].clamp_min(1e-300)
    axes = centred.T @ (vectors[:, kept] / values[kept].sqrt()) if wide else vectors[:, kept]
    return lambda y: (y.double() - mean) @ axes


def plane(x: Tensor) -> Tensor:
    """Points (n, d) along their first two principal components; zero where there are fewer."""
    flat = pca(x, 2)(x)
    return F.pad(flat, (0, 2 - flat.shape[1]))


def extract(
    extractor: Callable[[Tensor], Any],
    inputs: Tensor,
    *,
    batch_size: int = 64,
    progress: bool = True,
    console: Console | None = None,
) -> Tensor:
    """Features of images by a user's extractor, batch by batch, with a progress bar on a terminal.

    Args:
        extractor: any module (run in eval mode) or callable from (b, ...) to (b, d) or (b, ...).
        inputs: (n, ...).
        batch_size: samples per call.
        progress: False for silence.
        console: where to draw; the standard error unless given.

    Returns:
        (n, d) on the CPU.
    """
    if len(inputs) == 0:
        raise InputError("inputs is empty: there is nothing to extract features of.")
    console = console or Console(stderr=True)
    silent = not (progress and console.is_terminal)
    parts: list[Tensor] = []
    with torch.no_grad(), evaluating(extractor if isinstance(extractor, nn.Module) else nn.Identity()):
        for batch in track(torch.split(inputs, batch_size), "features", console=console, disable=silent):
            out = torch.as_tensor(extractor(batch))
            if out.ndim < 2 or len(out) != len(batch):
                raise InputError(
                    f"the extractor gave {tuple(out.shape)} for a batch of {len(batch)}. It must give one row per "
                    "sample."
                )
            if not bool(torch.isfinite(out).all()):
                first = batch_size * len(parts)
                raise InputError(
                    f"the extractor gave NaN or infinite values for samples {first} to {first + len(batch) - 1}."
                )
            parts.append(out.flatten(1).cpu())
    return torch.cat(parts)
