"""Disks: full at any byte, read-only, or without permission: a sentence, and afterwards the command still works.

A real small disk is mounted where that is allowed; elsewhere a limit on the size of files stands for it.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from attack.cases import Outcome, draw_of, forked
from attack.commands import SMALL, ldmnet, make_data, traceback_in, trained_folder

SIZE = 24 * 2**20  # bytes of the small disk
LONGEST = 120.0


class Disk:
    """The part's cases."""

    name = "disk"

    def __init__(self, seed: int, *, mount: bool = True) -> None:
        self.seed = seed
        self.folder = Path(tempfile.mkdtemp(prefix="attack-disk-"))
        self.data = make_data(self.folder / "data.npz")
        self.run_folder = self.folder / "trained" / "run"
        self.run_folder.parent.mkdir()
        trained_folder(self.run_folder)
        (self.run_folder / "checkpoint").unlink()
        self.small = self.folder / "small"
        self.small.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(self.small)]
        self.mounted = mount and os.name == "posix" and os.geteuid() == 0 and _quiet(command)
        out, run, data = self.small / "out", self.run_folder, self.data
        self.commands: dict[str, tuple[object, ...]] = {
            "train": ("train", data, *SMALL, "--output", out / "run"),
            "train, no snapshots": ("train", data, *SMALL, "--no-snapshots", "--output", out / "run"),
            "compare": ("compare", data, *SMALL, "--splits", "1", "--methods", "none,ldmnet", "--output", out / "cmp"),
            "tune": ("tune", data, *SMALL, "--splits", "1", "--trials", "2", "--output", out / "tune"),
            "predict": ("predict", run, data, "--output", out / "p.csv"),
            "embed": ("embed", run, data, "--output", out / "f.npz"),
            "embed, csv": ("embed", run, data, "--output", out / "f.csv"),
            "report": ("report", run, "-o", out / "r.html"),
            "export": ("export", run, "--output", out / "m.onnx"),
        }

    def close(self) -> None:
        """Unmount, and remove the files."""
        if self.mounted:
            _quiet(["umount", "-l", str(self.small)])
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, start: int, stop: int) -> Iterator[Outcome]:
        """The outcomes of some cases."""
        for case in range(start, stop):
            draw = draw_of(self.seed, self.name, case)
            kind = draw.choice([name for name in self.commands for _ in range(1 if name in ("export", "tune") else 5)])
            self._clear()
            try:
                end, words = self._case(kind, draw)
            finally:
                self._clear()
            yield Outcome(case, kind, end, words)

    def _clear(self) -> None:
        if self.mounted:
            _quiet(["mount", "-o", "remount,rw", str(self.small)])
        with suppress(OSError):
            self.small.chmod(0o755)
        for path in self.small.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def _case(self, kind: str, draw: Random) -> tuple[str, str]:
        log, how = self.folder / "log", draw.random()
        log.unlink(missing_ok=True)
        words, limit = self.commands[kind], 0
        most = {"export": 1e6, "report": 8e6}.get(kind, 200_000.0)
        if how < 0.15:
            self._read_only()
        elif self.mounted:
            with (self.small / "fill").open("wb") as file:
                file.write(bytes(SIZE - int(draw.uniform(0, most))))
        else:
            limit = 1 + int(draw.uniform(0, most))
        code = forked(lambda: _limited(limit, words), log, seconds=LONGEST, memory=2**33)
        if fault := traceback_in(log):
            return "a traceback", fault
        if code not in (0, 2):
            return f"exit code {code}", log.read_text(errors="replace")[-300:]
        if code == 2 and "Error: " not in log.read_text(errors="replace"):
            return "no sentence", log.read_text(errors="replace")[-300:]
        if self.mounted:
            _quiet(["mount", "-o", "remount,rw", str(self.small)])
        self.small.chmod(0o755)
        (self.small / "fill").unlink(missing_ok=True)
        again = forked(lambda: _limited(0, words), log, seconds=LONGEST, memory=2**33)
        if again != 0:
            return f"exit code {again} with room again", log.read_text(errors="replace")[-300:]
        left = [path.name for path in self.small.rglob(".ldmnet*")]
        return ("left behind", ", ".join(left)) if left else ("right" if code == 0 else "refused", "")

    def _read_only(self) -> None:
        if self.mounted:
            _quiet(["mount", "-o", "remount,ro", str(self.small)])
        else:
            self.small.chmod(0o555)


def _limited(limit: int, words: tuple[object, ...]) -> int:
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return ldmnet(*words)


def _quiet(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
