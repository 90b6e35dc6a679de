"""Mutation testing of the core: a sample of mutmut's one-line changes, and what the fast tests make of each.

    pip install mutmut==3.8.1
    python scripts/mutation.py --sample 800          some hours on one core; resumes
    python scripts/mutation.py --sample 800 --show   the survivors so far, each with its change

[tool.mutmut] in pyproject.toml names the modules and tests. mutmut works in the folder mutants/. Changes that its tests
miss are tried on tests/distributed too, whose processes inherit them. Counts go to results/attack/mutation.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "results" / "attack" / "mutation.json"
ELSEWHERE = ["tests/distributed", "tests/training/test_loop.py"]
IN_PROCESSES = ("ldmnet.regularizer.", "ldmnet.training.state.")  # parts of them run by several processes only
REACHED_ELSEWHERE = "tried in processes"
NOTICED = ("killed", "timeout", "segfault", "killed elsewhere")


def mutmut(*words: str) -> str:
    """What a command of mutmut prints; the progress of a run is shown."""
    shown = words[0] == "run"
    command = [sys.executable, "-m", "mutmut", *words]
    ended = subprocess.run(command, cwd=ROOT, env=quiet(), stdout=None if shown else subprocess.PIPE, text=True)
    return ended.stdout or ""


def quiet() -> dict[str, str]:
    """One thread, so that a fork finds none of torch's."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def outcomes() -> dict[str, str]:
    """Every mutant and how it ended, "not checked" for most."""
    lines = (line.strip().rpartition(": ") for line in mutmut("results", "--all", "true").splitlines())
    return {name: end for name, _, end in lines if name}


def killed_elsewhere(name: str) -> bool:
    """Whether the tests in processes of their own notice a mutant."""
    env = {**quiet(), "MUTANT_UNDER_TEST": name, "PYTHONPATH": "src"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *ELSEWHERE]
    code = subprocess.run(command, cwd=ROOT / "mutants", env=env, capture_output=True, check=False).returncode
    if code not in (0, 1):  # neither passed nor failed
        raise SystemExit(f"pytest ended with {code} in {ROOT / 'mutants'}: nothing was tried.")
    return code == 1


def change(name: str) -> str:
    """The lines that a mutant takes away and puts there."""
    lines = mutmut("show", name).splitlines()
    return "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def main() -> None:
    """Draw, run what has not run, and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="try the survivors again, after the tests have changed")
    parser.add_argument("--show", action="store_true", help="run nothing")
    options = parser.parse_args()
    known = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    found = outcomes()
    if not found and not options.show:
        mutmut("run", "nothing*")  # makes them
        found = outcomes()
    if not found:
        raise SystemExit("there are no mutants: is mutmut installed, and do its tests pass without a change?")
    drawn = [name for name in known.get("drawn", ()) if name in found]  # a change of the code takes some away
    drawn = drawn or random.Random(options.seed).sample(sorted(found), min(options.sample, len(found)))
    open_ends = ("not checked", *(("survived", "no tests") if options.again else ()))
    if not options.show and (todo := [name for name in drawn if found[name] in open_ends]):
        mutmut("run", "--max-children", "1", *todo)
        found = outcomes()
    elsewhere = dict(known.get(REACHED_ELSEWHERE, {}))
    if not options.show and killed_elsewhere(""):
        raise SystemExit("tests/distributed fail without a change: nothing was tried on them.")
    for name in drawn:
        missed = found[name] in ("survived", "no tests") and name.startswith(IN_PROCESSES)
        if missed and not options.show and (options.again or name not in elsewhere):
            elsewhere[name] = "killed elsewhere" if killed_elsewhere(name) else "survived"
    ends = {name: found[name] if found[name] in NOTICED else elsewhere.get(name, found[name]) for name in drawn}
    tried = {name: end for name, end in ends.items() if end != "not checked"}
    noticed = sum(end in NOTICED for end in tried.values())
    judged = {name: lived["reason"] for name, lived in known.get("survivors", {}).items()}  # by hand, in the file
    survivors = {
        name: {"change": change(name), "reason": judged.get(name, "not judged yet")}
        for name, end in sorted(tried.items())
        if end not in NOTICED
    }
    print(f"{noticed} of {len(tried)} noticed ({100 * noticed / max(1, len(tried)):.1f} %), of {len(found)} in all")
    if options.show:
        for name, lived in survivors.items():
            print(f"== {name}: {lived['reason']}\n{lived['change']}")
        return
    content = {
        "seed": options.seed,
        "mutants": len(found),
        "tried": len(tried),
        "noticed": noticed,
        "ends": dict(Counter(tried.values())),
        "survivors": survivors,
        "drawn": drawn,
        REACHED_ELSEWHERE: elsewhere,
    }
    OUTPUT.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
