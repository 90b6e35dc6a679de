"""Commands of the package in a forked process, and small data for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

SMALL = ("--epochs", "6", "--net", "mlp", "--batch-size", "16")


def make_data(path: Path, n: int = 24, d: int = 4) -> Path:
    """Three classes that overlap, as an .npz file."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    np.savez(path, x=(rng.normal(size=(n, d)) + y[:, None]).astype(np.float32), y=y)
    return path


def ldmnet(*words: object) -> int:
    """Run a command in this process and return its exit code; an error that is not in words comes through."""
    from ldmnet.cli import main

    torch.set_num_threads(1)
    try:
        main([str(word) for word in words], prog_name="ldmnet", standalone_mode=True)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return 0


def often_saved() -> None:
    """Write a checkpoint after every epoch, in this process, so that there is more to cut."""
    from ldmnet.runs.samples import UserSettings

    plain = UserSettings.training
    UserSettings.training = lambda self: replace(plain(self), checkpoint_every=1)  # type: ignore[method-assign]


def trained_folder(folder: Path) -> None:
    """A folder of `train`, with the checkpoint that it had at the end, as `checkpoint`."""
    from ldmnet.data.userdata import read_samples
    from ldmnet.runs.samples import Reading, UserSettings
    from ldmnet.runs.trained import train_run
    from ldmnet.training.state import Run

    data = make_data(folder.with_name("data.npz"))
    save, kept = Run.save, {}

    def save_and_keep(self: Run) -> None:
        save(self)
        if self.checkpoint is not None:
            kept["last"] = self.checkpoint.read_bytes()

    Run.save = save_and_keep  # type: ignore[method-assign]
    try:
        settings = UserSettings(epochs=4, test_share=0.3, batch_size=16)
        train_run(read_samples(data), settings, Reading(), folder, name="data.npz")
    finally:
        Run.save = save  # type: ignore[method-assign]
    (folder / "checkpoint").write_bytes(kept["last"])


def result_of(folder: Path) -> dict[str, Any]:
    """Everything in a folder that a cut must not change, by file: records and logs without times, arrays, bytes."""
    out: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name in ("lock", "log") or path.name.endswith(".lock"):
            continue
        if path.suffix in (".json", ".jsonl"):
            values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            out[name] = [_timeless(value) for value in values]
            if path.name == "records.jsonl":
                out[name] = sorted(out[name], key=lambda record: str(record.get("hash")))
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                out[name] = {key: (arrays[key].shape, arrays[key].tobytes()) for key in arrays.files}
        elif path.suffix == ".db":
            out[name] = "a study"
        else:
            out[name] = path.read_bytes()
    return out


def _timeless(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: one for name, one in value.items() if name not in ("seconds", "date", "command", "sum", "files")}


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """The names of what differs between two results."""
    return [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]


def traceback_in(log: Path) -> str:
    """The last line of a traceback in what a command printed; nothing if there is none."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if "Traceback (most recent call last)" not in text and "terminate called" not in text:
        return ""
    return [line for line in text.splitlines() if line.strip()][-1][:200]
