"""Kill or stop one of the processes that train together, at random moments, and see that nothing is lost.

    python benchmarks/distributed_kills.py --times 30        # results/benchmarks/distributed-kills.json

Each time a process of two to four is killed, or hangs: at a message of a step, half-way through a save, between epochs.
The others must end within the timeout and say why, the checkpoint must be whole, and the same number of processes, or
fewer, must resume and end with what a run without an accident ends with: the same bits by as many processes.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "distributed"))

TIMEOUT = 10.0
MOMENTS = {"message": 250, "save": 7, "epoch": 7}  # how often each comes, about


def main() -> None:
    import victims
    from workers import free_port, fresh_processes

    from ldmnet.training.checkpoint import read_checkpoint

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "benchmarks" / "distributed-kills.json")
    options = parser.parse_args()
    draw, context, found = random.Random(options.seed), fresh_processes(), []
    with tempfile.TemporaryDirectory() as place:
        whole = {}
        for size in (2, 3, 4):
            _, codes = victims.run(context, free_port(), Path(place, f"whole-{size}"), size)
            assert codes == [0] * size, codes
            whole[size] = torch.load(Path(place, f"whole-{size}", "result-0.pt"), weights_only=True)
        while sum(run["ended"] for run in found) < options.times:
            number = len(found)
            size, folder = draw.choice((2, 3, 4)), Path(place, f"run-{number}")
            end, when = draw.choice((victims.die, victims.die, victims.hang)), draw.choice(list(MOMENTS))
            victim = 0 if when != "message" else draw.randrange(size)  # the first process saves and counts epochs
            count = draw.randint(1, MOMENTS[when])
            spent, codes = victims.run(
                context, free_port(), folder, size, victim, end, when, count, timeout=TIMEOUT, limit=60 + TIMEOUT
            )
            others = [code for rank, code in enumerate(codes) if rank != victim]
            ended = codes[victim] != 0  # or the run had fewer such moments
            if ended:
                assert all(code == 1 for code in others), codes
                notes = [(folder / f"ended-{rank}").read_text() for rank in range(size) if rank != victim]
                assert all("lost the others" in note for note in notes), notes
            checkpoint = folder / "checkpoint.pt"
            epoch = read_checkpoint(checkpoint)["epoch"] if checkpoint.exists() else 0
            after = draw.choice((size, size, max(1, size - 1)))
            started = time.monotonic()
            _, codes = victims.run(context, free_port(), folder, after)
            assert codes == [0] * after, codes
            _, target, _ = torch.load(folder / "result-0.pt", weights_only=True)
            apart = float((target - whole[size][1]).norm() / whole[size][1].norm())
            assert apart == 0 if after == size else apart < 0.05, apart
            found.append(
                {"processes": size, "victim": victim, "how": end.__name__, "when": when, "count": count, "ended": ended,
                 "seconds": round(spent, 1), "epoch_saved": epoch, "resumed_by": after, "target_apart": apart,
                 "seconds_to_resume": round(time.monotonic() - started, 1)}
            )  # fmt: skip
            print(json.dumps(found[-1]), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"timeout": TIMEOUT, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
