"""Run the attacks: `python -m attack [PART ...] --seconds 600`, or to a count; resumes where the last one stopped."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from attack.cases import GOOD

GOALS = {"kills": 300, "damage": 10_000, "disk": 300, "fuzz": 1_000_000, "numbers": 100_000}
STEP = {"kills": 5, "damage": 200, "disk": 5, "fuzz": 20_000, "numbers": 2_000}
SHOWN = 20  # failures that are kept in words


def part_of(name: str, seed: int) -> Any:
    """A part by name."""
    if name == "fuzz":
        from attack.fuzz import Fuzz as Part
    elif name == "numbers":
        from attack.numeric import Numbers as Part  # type: ignore[assignment]
    elif name == "damage":
        from attack.damage import Damage as Part  # type: ignore[assignment]
    elif name == "kills":
        from attack.kills import Kills as Part  # type: ignore[assignment]
    else:
        from attack.disk import Disk as Part  # type: ignore[assignment]
    return Part(seed)


def attack(name: str, seed: int, start: int, stop: int, until: float) -> dict[str, Any]:
    """Some cases of one part, to a number or a time; counts by kind and end, and the first failures."""
    part, counts, failures = part_of(name, seed), Counter[str](), []
    began, at = time.monotonic(), start
    try:
        while at < stop and time.monotonic() < until:
            last = min(stop, at + STEP[name])
            for outcome in part.run(at, last):
                counts[f"{outcome.kind}: {outcome.end}"] += 1
                if outcome.end not in GOOD:
                    failures.append(vars(outcome))
                    print(f"  FAILED case {outcome.case}, {outcome.kind}: {outcome.end} {outcome.words}", flush=True)
            at = last
    finally:
        part.close()
    return {
        "part": name,
        "seed": seed,
        "first": start,
        "cases": at - start,
        "seconds": round(time.monotonic() - began, 1),
        "counts": dict(sorted(counts.items())),
        "failed": len(failures),
        "failures": failures[:SHOWN],
        **getattr(part, "also", {}),
    }


def main() -> int:
    """Read the words, attack, and write what came out."""
    parser = argparse.ArgumentParser(prog="python -m attack", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], metavar="PART", help=f"{', '.join(GOALS)}; all unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each part")
    parser.add_argument("--count", type=int, default=None, help="cases of each part; its goal unless given")
    parser.add_argument("--case", type=int, default=None, help="run this one again, and nothing else")
    parser.add_argument("--state", type=Path, default=Path("build/attack.json"), help="where the last one stopped")
    parser.add_argument("--output", type=Path, default=Path("results/attack"), help="a folder for counts and outcomes")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    if unknown := [name for name in words.parts if name not in GOALS]:
        parser.error(f"there is no part {unknown[0]}")
    failed = 0
    for name in words.parts or GOALS:
        state = json.loads(words.state.read_text()) if words.state.exists() else {}
        key = f"{name} {words.seed}"
        start = state.get(key, 0) if words.case is None else words.case
        stop = start + 1 if words.case is not None else words.count or GOALS[name]
        if start >= stop:
            print(f"{name}: {start} cases were done before, seed {words.seed}")
            continue
        found = attack(name, words.seed, start, stop, time.monotonic() + words.seconds)
        failed += found["failed"]
        print(f"{name}: cases {start} to {start + found['cases'] - 1}, seed {words.seed}, {found['seconds']} s")
        if "kills" in found:
            print(f"  {found['kills']:>9,}  kills")
        for kind, count in found["counts"].items():
            print(f"  {count:>9,}  {kind}")
        sys.stdout.flush()
        if words.case is None:
            words.output.mkdir(parents=True, exist_ok=True)
            with (words.output / f"{name}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            words.state.parent.mkdir(parents=True, exist_ok=True)
            words.state.write_text(json.dumps({**state, key: start + found["cases"]}))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
