"""Checkpoints and weights: written whole or not at all, with a checksum of every byte, and checked when read.

A checkpoint is what `torch.save` writes and, after it, the sha256 of that. Weights are a safetensors file whose
metadata holds the file's sha256, taken with zeros in that place. Nothing is used before its checksum is right.
"""

from __future__ import annotations

import copy
import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from ldmnet.errors import StateError
from ldmnet.files import read_bounded, written_whole

KEYS = ("epoch", "model", "optimizer", "regularizer", "random", "best", "history", "settings", "seconds")
SEAL, DIGITS = b"\nldmnet sha256 ", 64  # what ends a checkpoint, before so many hexadecimal digits
REMEDY = "Delete it, or choose another checkpoint path."
GET_AGAIN = "Train again, or get the file again."
ZEROS = b"0" * DIGITS
_IN_WEIGHTS = re.compile(rb'"sha256":"([0-9a-f]{64})"')


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint; a cut leaves the old one whole."""
    content = io.BytesIO()  # in memory first: torch's own writer ends in an error of its own where the disk is full
    torch.save(dict(state), content)
    with written_whole(path) as place, place.open("wb") as file:
        file.write(content.getbuffer())
        file.write(SEAL + hashlib.sha256(content.getbuffer()).hexdigest().encode())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        StateError: the file is not one, or not whole.
    """
    content = read_bounded(path, error=StateError)
    end = len(content) - len(SEAL) - DIGITS
    if end < 0 or not content.startswith(SEAL, end):
        raise StateError(
            f"{path} cannot be read as a checkpoint: it does not end with its checksum. It is something else, cut "
            f"short, or of an earlier version. {REMEDY}"
        )
    if hashlib.sha256(memoryview(content)[:end]).hexdigest().encode() != content[-DIGITS:]:
        raise StateError(
            f"{path} cannot be read as a checkpoint: it is damaged, its bytes do not have its checksum. {REMEDY}"
        )
    try:
        state: Any = torch.load(io.BytesIO(content), weights_only=True)
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
    if not isinstance(state["settings"], Mapping):
        raise StateError(f"{path} is not a whole checkpoint: its settings are {state['settings']!r:.60}.")
    theirs = dict(state["settings"])
    if theirs.pop("data", None) != settings.get("data"):
        raise StateError(f"{path} was written for other training data. {REMEDY}")
    changed = [f"{k} {theirs.get(k)!r} (now {v!r})" for k, v in settings.items() if k != "data" and theirs.get(k) != v]
    if changed:
        raise StateError(f"{path} belongs to another run: {', '.join(changed)}. {REMEDY}")


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's weights as safetensors; weights that two layers share are written twice."""
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    content = save(weights, metadata={"sha256": ZEROS.decode()})
    checksum = hashlib.sha256(content).hexdigest().encode()
    with written_whole(path) as place:
        place.write_bytes(content.replace(ZEROS, checksum, 1))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read what `save_weights` wrote into a model of the same shape, whole or not at all.

    Raises:
        StateError: the file is damaged, not one of ours, or of another network.
    """
    content = read_bounded(path, error=StateError)
    found = _IN_WEIGHTS.search(content, 0, min(len(content), 8 + int.from_bytes(content[:8], "little")))
    if found is None:
        raise StateError(
            f"{path} has no checksum: it holds something else, is cut short, or is of an earlier version. {GET_AGAIN}"
        )
    start, stop = found.span(1)
    if hashlib.sha256(content[:start] + ZEROS + content[stop:]).hexdigest().encode() != found[1]:
        raise StateError(f"{path} is damaged: its bytes do not have its checksum. {GET_AGAIN}")
    try:
        weights = load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise StateError(f"{path} cannot be read as weights: {error}") from error
    put_weights(model, weights, path, GET_AGAIN)


def put_weights(model: nn.Module, weights: Mapping[str, Any], path: Path, remedy: str = REMEDY) -> None:
    """Give a model weights by name, all or none of them."""
    before = copy.deepcopy(model.state_dict())
    try:
        model.load_state_dict(weights)
    except Exception as error:
        model.load_state_dict(before)
        words = " ".join(str(error).split())
        raise StateError(f"{path} was written for another network: {words} {remedy}") from error
