"""Checkpoints: written whole or not at all, and checked against the run that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ldmnet.errors import StateError
from ldmnet.files import written_whole

KEYS = ("epoch", "model", "optimizer", "regularizer", "random", "history", "settings")


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint; a cut leaves the old one whole."""
    with written_whole(path) as place, place.open("wb") as file:
        torch.save(dict(state), file)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        StateError: the file is not one, or not whole.
    """
    try:
        state: Any = torch.load(path, weights_only=True)
    except Exception as error:
        raise StateError(f"{path} cannot be read as a checkpoint: {' '.join(str(error).split())}") from error
    if not isinstance(state, dict):
        raise StateError(f"{path} is not a whole checkpoint: it lacks {', '.join(KEYS)}.")
    missing = [key for key in KEYS if key not in state]
    if missing:
        raise StateError(f"{path} is not a whole checkpoint: it lacks {', '.join(missing)}.")
    return state


def check_settings(state: Mapping[str, Any], settings: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint that was written with other settings or for other data."""
    theirs = dict(state["settings"])
    if theirs.pop("data", None) != settings.get("data"):
        raise StateError(f"{path} was written for other training data. Delete it, or choose another checkpoint path.")
    changed = [f"{k} {theirs.get(k)!r} (now {v!r})" for k, v in settings.items() if k != "data" and theirs.get(k) != v]
    if changed:
        raise StateError(
            f"{path} belongs to another run: {', '.join(changed)}. Delete it, or choose another checkpoint path."
        )


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's weights as safetensors; weights that two layers share are written twice."""
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    with written_whole(path) as place:
        save_file(weights, place)


def load_weights(model: nn.Module, path: Path) -> None:
    """Read what `save_weights` wrote into a model of the same shape."""
    model.load_state_dict(load_file(path))
