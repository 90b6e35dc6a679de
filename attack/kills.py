"""Kills: at a file operation, at a random moment, and of one of two processes; then the same command again.

Whatever was cut, the same command must end with exit code 0 and, where the result is one of training, with the same
bits as without a cut. Nothing temporary may be left.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from attack.cases import Outcome, begin, draw_of, ended, kill_group
from attack.commands import SMALL, differences, ldmnet, make_data, often_saved, result_of, traceback_in, trained_folder

LONGEST = 240.0  # seconds that a command may take
EVENTS = frozenset({"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.chmod"})


def killed_at(operation: int, folder: Path, work: Callable[[], int], count: Path | None = None) -> int:
    """Do some work and end this process by SIGKILL at its n-th operation on files in a folder; count them all."""
    seen, inside = [0], str(folder)

    def strike() -> None:
        seen[0] += 1
        if seen[0] == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in EVENTS and args and isinstance(args[0], str | os.PathLike) and str(args[0]).startswith(inside):
            strike()

    sys.addaudithook(hook)
    sync = os.fsync

    def fsync(handle: int) -> None:
        strike()
        sync(handle)
        strike()

    os.fsync = fsync  # type: ignore[assignment]
    code = work()
    if count is not None:
        count.write_text(str(seen[0]))
    return code


class Kills:
    """The part's cases: scenario by scenario in turn.

    Args:
        seed: of the attack.
        only: the scenarios; all unless given.
    """

    name = "kills"

    def __init__(self, seed: int, only: tuple[str, ...] = ()) -> None:
        self.seed = seed
        self.folder = Path(tempfile.mkdtemp(prefix="attack-kills-"))
        self.data = make_data(self.folder / "data.npz")
        self.run_folder = self.folder / "trained" / "run"
        self.run_folder.parent.mkdir()
        trained_folder(self.run_folder)
        (self.run_folder / "checkpoint").unlink()
        train = ("train", self.data, *SMALL, "--test-share", "0.3", "--output", "{}/out")
        self.scenarios: dict[str, tuple[object, ...]] = {
            "train": train,
            "train with patience": (*train, "--patience", "3", "--method", "dropout"),
            "train without snapshots": (*train, "--no-snapshots", "--method", "control"),
            "two at one folder": train,
            "compare": (
                "compare",
                self.data,
                *SMALL,
                "--splits",
                "1",
                "--methods",
                "none,ldmnet",
                "--output",
                "{}/out",
            ),
            "report": ("report", self.run_folder, "-o", "{}/out/report.html"),
            "predict": ("predict", self.run_folder, self.data, "--output", "{}/out/p.csv"),
            "tune": ("tune", self.data, *SMALL, "--splits", "1", "--trials", "2", "--output", "{}/out"),
            "sweep with workers": (),
            "export": ("export", self.run_folder, "--output", "{}/out/model.onnx"),
        }
        weights = {"tune": 1, "sweep with workers": 1, "export": 1, "report": 2, "predict": 2, "compare": 5}
        names = [name for name in self.scenarios if not only or name in only]
        self.order = [name for name in names for _ in range(weights.get(name, 10))]
        self.also = Counter[str]()
        self.truth: dict[str, tuple[dict[str, Any], int, float]] = {}

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, start: int, stop: int) -> Iterator[Outcome]:
        """The outcomes of some cases."""
        for case in range(start, stop):
            draw = draw_of(self.seed, self.name, case)
            kind = draw.choice(self.order)
            end, words = self._case(kind, draw)
            yield Outcome(case, kind, end, words)

    def _work(self, kind: str, place: Path) -> Callable[[], int]:
        if kind == "sweep with workers":
            return partial(_swept, place)
        words = [str(word).replace("{}", str(place)) for word in self.scenarios[kind]]

        def work() -> int:
            often_saved()
            return ldmnet(*words)

        return work

    def _known(self, kind: str) -> tuple[dict[str, Any], int, float]:
        """What a command leaves without a cut, how many operations on files it makes, and how long it takes."""
        if kind not in self.truth:
            place = Path(tempfile.mkdtemp(prefix="whole-", dir=self.folder))
            started = time.monotonic()
            code = ended(
                begin(lambda: killed_at(-1, place, self._work(kind, place), place / "log"), place / "out.log"), LONGEST
            )
            if code != 0:
                raise RuntimeError(f"{kind} ends with {code}: {(place / 'out.log').read_text()[-500:]}")
            taken = time.monotonic() - started
            count = int((place / "log").read_text())
            self.truth[kind] = _left(place, kind), count, taken
            shutil.rmtree(place)
        return self.truth[kind]

    def _case(self, kind: str, draw: Random) -> tuple[str, str]:
        truth, count, taken = self._known(kind)
        place = Path(tempfile.mkdtemp(prefix="case-", dir=self.folder))
        log = place / "out.log"
        try:
            for _ in range(draw.choice((2, 3, 4, 6))):
                self.also["kills"] += 1
                if kind == "two at one folder":
                    first, second = (begin(self._work(kind, place), log) for _ in range(2))
                    time.sleep(draw.uniform(0, taken))
                    kill_group(first)
                    ended(first, LONGEST)
                    if (code := ended(second, LONGEST)) not in (0, 2):
                        return f"exit code {code}", traceback_in(log)
                elif draw.random() < 0.7 and kind != "sweep with workers":
                    operation = draw.randrange(1, count + 1)
                    ended(begin(partial(killed_at, operation, place, self._work(kind, place)), log), LONGEST)
                else:
                    pid = begin(self._work(kind, place), log, memory=2**34)
                    time.sleep(draw.uniform(0, taken))
                    os.kill(pid, signal.SIGKILL)
                    ended(pid, LONGEST)
            code = ended(begin(self._work(kind, place), log, memory=2**34), LONGEST)
            if fault := traceback_in(log):
                return "a traceback", fault
            if code != 0:
                return f"exit code {code}", log.read_text(errors="replace")[-300:]
            left = [str(p.relative_to(place)) for p in place.rglob("*") if _temporary(p) and kind != "tune"]
            if left:
                return "left behind", ", ".join(left)
            if other := differences(truth, _left(place, kind)):
                return "another result", ", ".join(other)
            return "right", ""
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _temporary(path: Path) -> bool:
    """Whether nothing of it may be left; only `tune` gives a cut run up, and draws another."""
    return path.name.startswith(".ldmnet") or path.name in ("lock", "checkpoint.pt")


def _left(place: Path, kind: str) -> dict[str, Any]:
    """What a command left that a cut may not change."""
    found = result_of(place / "out")
    if kind == "tune":  # a cut search draws other numbers than an uncut one, but as many
        records = found.get("records.jsonl", [])
        return {"doubles": len(records) - len({record["hash"] for record in records}), "enough": len(records) >= 2}
    if kind in ("report", "export"):  # dates and names that the libraries make
        return {name: len(content) // 1000 for name, content in found.items()}
    return found


def _swept(place: Path) -> int:
    """Two runs by two workers of a sweep."""
    from rich.console import Console

    from attack.sweeping import load_small, runs
    from ldmnet.runs.sweep import Places, sweep_runs

    out = place / "out"
    sweep_runs(
        runs(),
        "mnist",
        Places(jobs=2, runs_dir=out / "runs", results=out),
        load=load_small,
        console=Console(quiet=True),
    )
    return 0
