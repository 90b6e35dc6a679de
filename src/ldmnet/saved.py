"""Saved states: whether their parts are of the types and in the ranges that they were saved with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from ldmnet.errors import StateError

T = TypeVar("T")
REGULARIZER = ("target", "Z", "running", "visits", "pull", "search", "steps", "data", "settings")  # its state's parts


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


def entries_of(what: str, kind: type[T], entries: Any) -> list[T]:
    """A list of dicts as dataclasses of a kind whose fields are numbers, text or None; anything else is refused."""
    if not isinstance(entries, list):
        raise refuse(what, entries)
    for entry in entries:
        check_mapping(f"an entry of {what}", entry)
        for field in fields(kind):  # type: ignore[arg-type]
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
    try:
        return [kind(**entry) for entry in entries]
    except TypeError as error:
        raise damaged(f"an entry of {what} cannot be read: {error}") from error


def checked_target(state: Any) -> Tensor | None:
    """The target in a regulariser's state, which must have all of its parts; None before the first update."""
    check_mapping("it", state)
    missing = [key for key in REGULARIZER if key not in state]
    if missing:
        raise StateError(f"the state lacks {', '.join(missing)}. Pass what state_dict() returned, whole.")
    target = state["target"]
    if target is not None and not (isinstance(target, Tensor) and target.ndim == 2):
        raise refuse("target", target)
    return target


def checked_rows(state: Mapping[str, Any], labelled: Tensor) -> list[Tensor | None]:
    """A regulariser's target, Z, running and visits from its state, each None or right for (n,) samples.

    Args:
        state: the state.
        labelled: (n,) which samples have a target.
    """
    names, n, target, several = ("target", "Z", "running", "visits"), len(labelled), state["target"], False
    if target is not None:
        check_rows("target", target, n, finite=labelled)
        several = isinstance(state["Z"], Tensor) and len(state["Z"]) == 0  # processes, which keep no Z
        check_rows("Z", state["Z"], 0 if several else n, None if several else target, None if several else labelled)
    elif any(state[name] is not None for name in names):
        raise damaged("it has no target, but what belongs to one")
    if state["running"] is not None:
        check_rows("running", state["running"], n, target)
    if state["visits"] is not None:
        check_counts("visits", state["visits"], n)
    return [None if name == "Z" and several else state[name] for name in names]


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
