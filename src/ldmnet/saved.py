"""Saved states: whether their parts are of the types and in the ranges that they were saved with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ldmnet.errors import StateError


def refuse(what: str, value: Any) -> StateError:
    """The error about a part that is not what it was saved as."""
    shown = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.60}"
    return damaged(f"{what} is {shown}")


def damaged(words: str) -> StateError:
    """The error about a part that cannot be as it is."""
    return StateError(f"the state is damaged: {words}. Take an earlier one, or start again.")


def check_number(what: str, value: Any, low: float = -math.inf, high: float = math.inf, *, whole: bool = False) -> None:
    """Refuse what is no number from `low` to `high`, or NaN."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        raise refuse(what, value)


def check_mapping(what: str, value: Any, keys: Sequence[str] = ()) -> None:
    """Refuse what is no mapping, or lacks some of the keys."""
    if not isinstance(value, Mapping) or any(key not in value for key in keys):
        raise refuse(what, list(value) if isinstance(value, Mapping) else value)


def check_entries(what: str, kind: type[Any], entries: Any) -> None:
    """Refuse a list of dicts that are no fields of the dataclass `kind`: its fields are numbers, text or None."""
    if not isinstance(entries, list):
        raise refuse(what, entries)
    for entry in entries:
        check_mapping(f"an entry of {what}", entry)
        for field in fields(kind):
            if field.name not in entry:
                continue
            value = entry[field.name]
            if field.type == "str":
                good = isinstance(value, str)
            elif str(field.type).startswith("dict"):
                good = isinstance(value, dict) and all(isinstance(v, int | float) for v in value.values())
            else:
                good = isinstance(value, int | float) or (value is None and "None" in str(field.type))
            if not good:
                raise refuse(f"{field.name} in {what}", value)


def check_rows(what: str, value: Any, n: int, like: Tensor | None = None, finite: Tensor | None = None) -> None:
    """Refuse what is no tensor (n, d) of floating-point numbers.

    Args:
        what: its name.
        value: the tensor.
        n: how many rows it must have.
        like: a tensor whose shape and type it must have, if there is one.
        finite: (n,) the rows without NaN and infinity; None if any may have them.
    """
    if not isinstance(value, Tensor) or value.ndim != 2 or len(value) != n or not value.is_floating_point():
        raise refuse(what, value)
    if value.layout != torch.strided or (like is not None and (value.shape, value.dtype) != (like.shape, like.dtype)):
        raise refuse(what, value)
    if finite is not None and not bool(value[finite.to(value.device)].isfinite().all()):
        raise damaged(f"{what} has NaN or infinite values")


def check_counts(what: str, value: Any, n: int) -> None:
    """Refuse what is no tensor (n,) of whole numbers from zero."""
    whole = isinstance(value, Tensor) and value.dtype in (torch.int32, torch.int64) and value.shape == (n,)
    if not whole or bool((value < 0).any()):
        raise refuse(what, value)


def check_lists(what: str, value: Any, size: int, width: int) -> None:
    """Refuse what is no tensor (size, width) of each row's neighbours: ascending places below size, not its own."""
    whole = isinstance(value, Tensor) and value.dtype in (torch.int32, torch.int64) and value.layout == torch.strided
    if not whole or value.shape != (size, width):
        raise refuse(what, value)
    own = torch.arange(size, device=value.device)[:, None]
    if bool((value < 0).any() or (value >= size).any() or (value.diff(dim=1) <= 0).any() or (value == own).any()):
        raise damaged(f"{what} names points that cannot be there")
