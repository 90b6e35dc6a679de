"""A data set's samples in its own order, batch by batch, and what of a batch reaches a network."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset

from ldmnet.errors import InputError

INDEX = "sample_index"
NO_INPUTS = ("labels", "label", INDEX)  # in a batch by name
SAY_WHAT = 'Say what reaches the model: forward=lambda model, batch: model(batch["image"]).'


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


class InOrder:
    """The batches of a tensor, a data set or a loader's data set, in the data set's own order, each sample once.

    A loader lends its workers, its collation and the size of its batches, never its sampler. The passes draw no random
    numbers from the training's generators.

    Args:
        data: (n, ...), a data set with a length, or a DataLoader.
        batch_size: samples per batch where `data` is no loader.
        share: which of how many shares to read, each a run of samples: (0, 1) reads all.

    Attributes:
        n: how many samples the data set has.
        mine: the samples of the share.
        indexed: whether a batch begins with the index of an IndexedDataset.
    """

    def __init__(self, data: Any, batch_size: int = 500, share: tuple[int, int] = (0, 1)) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}.")
        dataset = data.dataset if isinstance(data, DataLoader) else data
        self.n = _length(dataset)
        self.mine = range(self.n * share[0] // share[1], self.n * (share[0] + 1) // share[1])
        self._tensor: Tensor | None = None
        self._batch_size = batch_size
        if isinstance(data, Tensor):
            self._tensor = data
        elif self.mine:
            self._loader = _sequential(data, batch_size, self.mine)
        self.indexed = begins_with_index(dataset)

    def __len__(self) -> int:
        return len(self.mine)

    def __iter__(self) -> Iterator[Any]:
        if self.n == 0:
            raise InputError("the data set is empty: there is nothing to sweep.")
        if not self.mine:
            return
        start = self.mine.start
        if self._tensor is not None:
            yield from torch.split(self._tensor[start : self.mine.stop], self._batch_size)
            return
        for batch in self._loader:
            if self.indexed and isinstance(batch, tuple | list):
                start += _checked_index(batch[0], start)
            yield batch

    def inputs(self, batch: Any) -> Any:
        """A batch without the index it begins with."""
        return batch[1:] if self.indexed and isinstance(batch, tuple | list) else batch


def run_on(model: nn.Module, batch: Any) -> Any:
    """The model's output for a tensor, for the first of several items, or for a batch by name without its labels."""
    given = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if isinstance(given, Tensor):
        return model(given)
    if not isinstance(given, Mapping):
        raise InputError(f"a batch gives the model a {type(given).__name__}, no tensor. {SAY_WHAT}")
    named = {name: value for name, value in given.items() if name not in NO_INPUTS}
    try:
        inspect.signature(model.forward).bind(**named)
    except TypeError as error:
        raise InputError(
            f"the model's forward does not fit a batch of {', '.join(map(str, named))}: {error}. {SAY_WHAT}"
        ) from error
    return model(**named)


def moved(batch: Any, device: torch.device) -> Any:
    """A batch with every tensor in it on `device`."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        items = [moved(item, device) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


def _length(dataset: Any) -> int:
    if isinstance(dataset, Tensor):
        if dataset.ndim == 0:
            raise InputError("a sweep needs samples (n, ...), got a single number.")
        return len(dataset)
    if isinstance(dataset, IterableDataset):
        raise InputError(
            f"{type(dataset).__name__} is an IterableDataset, whose samples have no order and no number. Use a data "
            "set with __len__ and __getitem__."
        )
    odd = isinstance(dataset, tuple | str | Mapping) or hasattr(dataset, "__array__")
    if odd or not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"a sweep needs a tensor, a data set or a DataLoader, got a {type(dataset).__name__}. Make a tensor of "
            "arrays: torch.as_tensor(x)."
        )
    try:
        return len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise InputError(
            f"{type(dataset).__name__} has no length: give it __len__, or keep the samples in a list."
        ) from error


def _sequential(data: Any, batch_size: int, mine: range) -> DataLoader[Any]:
    apart = torch.Generator().manual_seed(0)  # a loader draws its workers' seed, else from the training's numbers
    if not isinstance(data, DataLoader):
        return DataLoader(data, batch_size=batch_size, sampler=mine, generator=apart)
    if data.batch_sampler is None:
        raise InputError(
            "the loader has batch_size=None and leaves batches to its data set, so that their samples cannot be "
            "counted. Pass the data set itself, if it gives single samples, or a loader that makes batches."
        )
    size = data.batch_size or getattr(data.batch_sampler, "batch_size", None)
    return DataLoader(
        data.dataset,
        batch_size=size if isinstance(size, int) else batch_size,
        sampler=mine,
        num_workers=data.num_workers,
        collate_fn=data.collate_fn,
        pin_memory=data.pin_memory,
        timeout=data.timeout,
        worker_init_fn=data.worker_init_fn,
        multiprocessing_context=data.multiprocessing_context,
        prefetch_factor=data.prefetch_factor,
        generator=apart,
    )


def begins_with_index(dataset: Any) -> bool:
    """Whether the samples of a data set, or of the one that it is a part of, come from an `IndexedDataset`."""
    if isinstance(dataset, Subset):
        return begins_with_index(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return any(map(begins_with_index, dataset.datasets))
    return isinstance(dataset, IndexedDataset)


def _checked_index(index: Any, start: int) -> int:
    """How many samples a batch has, whose index must count on from `start`."""
    found = torch.as_tensor(index).flatten().cpu()
    wrong = (found != torch.arange(start, start + len(found))).nonzero()
    if len(wrong):
        at = int(wrong[0])
        raise InputError(
            f"sample {start + at} of the data set comes with the index {int(found[at])}, which counts the samples of "
            "another one. Take the part first and number it then: IndexedDataset(Subset(dataset, indices)), not "
            "Subset(IndexedDataset(dataset), indices)."
        )
    return len(found)
