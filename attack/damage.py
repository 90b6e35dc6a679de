"""Damage: flips, cuts and zeroed sectors in every kind of file that we write and read.

A damaged file must be refused, or give exactly what the whole one gives.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from attack.cases import Outcome, draw_of, in_batches, short
from attack.commands import trained_folder
from ldmnet.errors import LDMNetError
from ldmnet.networks import mlp
from ldmnet.records.record import append, read_records
from ldmnet.report.collect import collect
from ldmnet.runs.run import read_run
from ldmnet.runs.trained import load_run
from ldmnet.training.checkpoint import load_weights, read_checkpoint, save_weights


def damaged(content: bytes, draw: Random) -> bytes:
    """A file with one to three flipped bits, cut short, or with a sector of zeros."""
    out, how = bytearray(content), draw.randrange(4)
    if how <= 1:
        for _ in range(draw.choice((1, 1, 2, 3))):
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    elif how == 2:
        del out[draw.randrange(len(out)) :]
    else:
        start = draw.randrange(len(out)) // 512 * 512
        out[start : start + 512] = bytes(min(512, len(out) - start))
    return bytes(out)


def plain(value: Any) -> Any:
    """A value that can be compared: arrays as their bytes."""
    if isinstance(value, torch.Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"",
        )
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


class Damage:
    """The part's cases, file by file in turn."""

    name = "damage"

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.folder = Path(tempfile.mkdtemp(prefix="attack-damage-"))
        run = self.folder / "run"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained_folder(run)
        shutil.move(run / "checkpoint", self.folder / "checkpoint.pt")
        for i in range(3):
            record = read_run(run)
            append(
                self.folder / "records.jsonl",
                type(record).from_json({**record.to_json(), "seed": i, "hash": f"{i:012}"}, ""),
            )
        save_weights(mlp(3, 2, (4,)), self.folder / "w.safetensors")
        self.kinds: list[tuple[str, Path, Callable[[Path], Any]]] = [
            ("checkpoint", self.folder / "checkpoint.pt", read_checkpoint),
            ("weights", self.folder / "w.safetensors", _weights),
            ("a run's weights", run / "model.safetensors", lambda path: load_run(path.parent).model.state_dict()),
            ("run.json", run / "run.json", lambda path: read_run(path.parent).to_json()),
            (
                "records",
                self.folder / "records.jsonl",
                lambda path: [record.to_json() for record in read_records([path])],
            ),
            ("snapshots", run / "snapshots.npz", _collected),
            ("history", run / "history.jsonl", _collected),
            ("updates", run / "updates.jsonl", _collected),
        ]
        self.whole = {kind: path.read_bytes() for kind, path, _ in self.kinds}
        self.truth = {kind: plain(read(path)) for kind, path, read in self.kinds}

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, start: int, stop: int) -> Iterator[Outcome]:
        """The outcomes of some cases."""
        yield from in_batches(self._case, start, stop)

    def _case(self, case: int) -> tuple[str, str, str]:
        draw = draw_of(self.seed, self.name, case)
        kind, path, read = self.kinds[case % len(self.kinds)]
        content = damaged(self.whole[kind], draw)
        path.write_bytes(content)
        told: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *more, **others: told.append(str(message))  # type: ignore[assignment]
            try:
                found = plain(read(path))
            except LDMNetError:
                return kind, "refused", ""
            except BaseException as error:
                return kind, "not our error", short(error)
            finally:
                path.write_bytes(self.whole[kind])
        if found == self.truth[kind]:
            return kind, "right", ""
        if told:
            return kind, "told", ""
        if kind == "records" and found == self.truth[kind][: len(found)] and self.whole[kind].startswith(content):
            return kind, "fewer whole lines", ""  # as if those runs were not made yet: they are made again
        return kind, "another result without a word", _where(self.whole[kind], content)


def _where(whole: bytes, content: bytes) -> str:
    place = next((i for i, (a, b) in enumerate(zip(whole, content, strict=False)) if a != b), len(content))
    return f"{len(whole)} bytes, {len(content)} left, first at {place}: {whole[max(0, place - 30) : place + 10]!r}"


def _weights(path: Path) -> Any:
    model = mlp(3, 2, (4,))
    load_weights(model, path)
    return model.state_dict()


def _collected(path: Path) -> Any:
    """What a report is made of."""
    (run,) = collect([path.parent])
    kept = run.snapshots
    points = None if kept is None else {**vars(kept.points)}
    taken = None if kept is None else {epoch: asdict(snapshot) for epoch, snapshot in kept.taken.items()}
    return run.history, run.updates, points, taken
