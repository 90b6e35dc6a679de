"""What a report shows beyond a run's numbers: the features of some samples at about ten epochs, kept in its folder.

    trace = Trace(folder, model, points, epochs=300)
    result = fit(model, ..., on_epoch=trace)
    trace.finish(result)

`snapshots.npz` holds the features of a fixed few samples, their predictions and the spread of the features
within classes. Nothing is drawn at random while training and no gradient is taken, so a run with a trace gives the same
network as one without.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ldmnet.errors import DataError
from ldmnet.files import written_whole
from ldmnet.seeds import generator
from ldmnet.training.features import FeatureTap, evaluating
from ldmnet.training.history import Epoch
from ldmnet.training.loop import Fit
from ldmnet.training.progress import OnEpoch

FILE = "snapshots.npz"
FORMAT = 1
SNAPSHOTS = 10  # beside the one before training
POINTS = 300
SIDE = 32  # pixels of an image that is kept
COLUMNS = 4096  # features that are kept, evenly spaced where there are more
EIGENVALUES = 30

Part = Literal["test", "training"]


@dataclass(frozen=True, eq=False)
class Points:
    """The samples that are followed.

    Attributes:
        x: (n, ...) inputs of the network.
        labels: (n,) classes.
        class_names: of every class.
        names: of every sample, for people to find it again.
        images: uint8 (n, height, width, 1 or 3); None where the samples are not images.
        part: what they are taken from.
    """

    x: Tensor
    labels: Tensor
    class_names: list[str]
    names: list[str]
    images: NDArray[np.uint8] | None
    part: Part = "test"


def choose_points(
    x: Tensor,
    labels: Tensor,
    *,
    raw: Tensor,
    class_names: list[str],
    names: list[str] | None = None,
    part: Part = "test",
    most: int = POINTS,
) -> Points:
    """Draw the samples to follow: the same ones for every method, since the draw depends on their number alone.

    Args:
        x: (n, ...) inputs of the network.
        labels: (n,) classes.
        raw: (n, ...) the samples before preprocessing, for their pictures.
        class_names: of every class.
        names: of every sample; its number, counted from 1, unless given.
        part: what the samples are.
        most: how many at most.
    """
    chosen = torch.randperm(len(x), generator=generator(0, "snapshots"))[:most].sort().values
    return Points(
        x[chosen],
        labels[chosen],
        class_names,
        [str(i + 1) if names is None else names[i] for i in chosen.tolist()],
        thumbnails(raw[chosen]) if raw.ndim == 4 else None,
        part,
    )


def thumbnails(images: Tensor) -> NDArray[np.uint8]:
    """Images (n, channels, height, width) as small uint8 pictures (n, height, width, 1 or 3)."""
    pixels = images.detach().cpu().float()
    if images.dtype != torch.uint8:  # any range of numbers: the lowest is black and the highest is white
        low, high = pixels.amin(), pixels.amax()
        pixels = (pixels - low) * (255 / (high - low).clamp(min=1e-12))
    if pixels.shape[1] not in (1, 3):
        pixels = pixels.mean(1, keepdim=True)
    height, width = pixels.shape[2:]
    if max(height, width) > SIDE:
        shrink = SIDE / max(height, width)
        size = (max(1, round(height * shrink)), max(1, round(width * shrink)))
        pixels = F.adaptive_avg_pool2d(pixels, size)
    out: NDArray[np.uint8] = pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return out


def snapshot_epochs(epochs: int) -> list[int]:
    """After how many epochs the features are kept: before training, at the end, and in between closer at the start."""
    return sorted({round(epochs * (i / SNAPSHOTS) ** 2) for i in range(SNAPSHOTS + 1)})


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The points at one epoch.

    Attributes:
        features: uint8 (n, d): feature j is low[j] + step[j] * features[:, j].
        low: (d,).
        step: (d,).
        predicted: (n,) classes.
        within: the largest eigenvalues of the features' covariance around the mean of each class.
        total: the features' variance, around their mean and around the means of their classes.
    """

    features: NDArray[np.uint8]
    low: NDArray[np.float32]
    step: NDArray[np.float32]
    predicted: NDArray[np.int32]
    within: NDArray[np.float32]
    total: NDArray[np.float32]

    def values(self) -> NDArray[np.float32]:
        """The features (n, d), as near as they were kept."""
        return self.low + self.step * self.features.astype(np.float32)


def take(model: nn.Module, points: Points, layer: str) -> Snapshot:
    """The points as the network sees them now."""
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad(), FeatureTap(model, layer) as tap:
        logits, f = tap(points.x.to(device))
    f = torch.nan_to_num(f.float().cpu())
    by_class = F.one_hot(points.labels.cpu()).float()
    by_class = by_class / by_class.sum(0).clamp(min=1)
    centred, within = f - f.mean(0), f - F.one_hot(points.labels.cpu()).float() @ (by_class.T @ f)
    kept = f[:, :: -(-f.shape[1] // COLUMNS)]
    low, high = kept.amin(0), kept.amax(0)
    step = (high - low) / 255
    return Snapshot(
        features=((kept - low) / step.clamp(min=1e-30)).round().clamp(0, 255).to(torch.uint8).numpy(),
        low=low.numpy(),
        step=step.numpy(),
        predicted=logits.argmax(1).to(torch.int32).cpu().numpy(),
        within=_eigenvalues(within),
        total=torch.stack([centred.square().sum(), within.square().sum()]).div(len(f)).numpy(),
    )


def _eigenvalues(centred: Tensor) -> NDArray[np.float32]:
    """The largest eigenvalues of a covariance, descending; always as many, with zeros where there are fewer."""
    n, d = centred.shape
    gram = (centred @ centred.T if n <= d else centred.T @ centred) / n
    if not torch.isfinite(gram).all():
        return np.zeros(EIGENVALUES, np.float32)
    found = torch.linalg.eigvalsh(gram).flip(0)[:EIGENVALUES].clamp(min=0)
    out: NDArray[np.float32] = F.pad(found, (0, EIGENVALUES - len(found))).numpy()
    return out


class Trace:
    """Follows a training run; give it to `fit` as `on_epoch`, then call `finish` with the result.

    Args:
        folder: where the files go; nothing is written before the first epoch is done.
        model: the network, before training.
        points: the samples to follow.
        epochs: how many there will be.
        layer: the name of the feature layer.
        then: called with every epoch too.
    """

    def __init__(
        self,
        folder: Path,
        model: nn.Module,
        points: Points,
        *,
        epochs: int,
        layer: str = "features",
        then: OnEpoch | None = None,
    ) -> None:
        self._folder, self._model, self._points, self._layer, self._then = folder, model, points, layer, then
        self._due = snapshot_epochs(epochs)
        self._taken = {0: take(model, points, layer)}
        self._started = False

    def __call__(self, epoch: Epoch) -> None:
        """After an epoch: keep the features if it is time."""
        done = epoch.epoch + 1
        if not self._started:
            self._started = True
            if done > 1:  # going on from a checkpoint
                self._taken |= self._kept_before(done)
        if done in self._due:
            self._taken[done] = take(self._model, self._points, self._layer)
            write_snapshots(self._folder / FILE, Snapshots(self._points, self._taken))
        if self._then is not None:
            self._then(epoch)

    def _kept_before(self, done: int) -> dict[int, Snapshot]:
        if not (self._folder / FILE).exists():
            return {}
        try:
            old = read_snapshots(self._folder / FILE)
        except DataError as error:
            warnings.warn(f"{error} The snapshots before epoch {done} are left out.", UserWarning, stacklevel=2)
            return {}
        same = old.points.names == self._points.names
        return {epoch: snapshot for epoch, snapshot in old.taken.items() if 0 < epoch < done and same}

    def finish(self, fit: Fit) -> None:
        """Take the last snapshot again if other weights were put back at the end."""
        done = len(fit.history)
        if not self._started and done:  # all epochs were done before a cut
            self._taken |= self._kept_before(done + 1)
        if done and (fit.best_epoch is not None or done not in self._taken):
            self._taken[done] = take(self._model, self._points, self._layer)
            write_snapshots(self._folder / FILE, Snapshots(self._points, self._taken))


@dataclass(frozen=True, eq=False)
class Snapshots:
    """The points of a run (their inputs left out when read from a file) and how the network saw them, by epoch."""

    points: Points
    taken: dict[int, Snapshot] = field(default_factory=dict)


def write_snapshots(path: Path, snapshots: Snapshots) -> None:
    """Write one .npz file."""
    points, taken = snapshots.points, dict(sorted(snapshots.taken.items()))
    arrays: dict[str, Any] = {
        "format": np.array(FORMAT),
        "epochs": np.array(list(taken), np.int64),
        "labels": points.labels.cpu().numpy().astype(np.int64),
        "class_names": np.array(points.class_names, np.str_),
        "names": np.array(points.names, np.str_),
        "part": np.array(points.part),
    }
    if points.images is not None:
        arrays["images"] = points.images
    for name in Snapshot.__dataclass_fields__:
        arrays[name] = np.stack([getattr(snapshot, name) for snapshot in taken.values()])
    with written_whole(path) as place, place.open("wb") as file:
        np.savez(file, **arrays)


def read_snapshots(path: Path) -> Snapshots:
    """Read what `write_snapshots` wrote.

    Raises:
        DataError: the file is missing, cut, of another version or something else.
    """
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        found = int(arrays["format"])
        if found != FORMAT:
            raise DataError(f"{path} was written by another version of ldmnet: its format is {found}, not {FORMAT}.")
        labels = torch.from_numpy(arrays["labels"])
        points = Points(
            x=torch.empty(len(labels), 0),
            labels=labels,
            class_names=[str(name) for name in arrays["class_names"]],
            names=[str(name) for name in arrays["names"]],
            images=arrays.get("images"),
            part="test" if str(arrays["part"]) == "test" else "training",
        )
        kept = [arrays[name] for name in Snapshot.__dataclass_fields__]
        taken = {int(epoch): Snapshot(*parts) for epoch, *parts in zip(arrays["epochs"], *kept, strict=True)}
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist.") from error
    except Exception as error:  # zip and NumPy have many
        raise DataError(f"{path} cannot be read: {' '.join(str(error).split())}.") from error
    return Snapshots(points, taken)
