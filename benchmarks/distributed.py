"""One update by 1, 2 and 4 processes on loopback: memory per process, bytes moved against the formula, time.

    python benchmarks/distributed.py                          # results/benchmarks/distributed.json
    python benchmarks/distributed.py --n 200000 --processes 1 2

Classes of 1,000 synthetic points; and one class of 20,000, which is sharded. Every process makes its own share of the
points. Memory is the peak of the process's resident size during a step, less what it had before and less the targets of
all samples, which every process keeps. Bytes are those that the loopback device counted, which includes headers.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "distributed"))
PER_CLASS = 1000


def resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def loopback() -> int:
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[1])


def expected_bytes(n: int, d: int, size: int) -> int:
    """Bytes of one update that all processes send together where classes have owners; see docs/scale.md."""
    features = n * (1 - 1 / size) * (4 * d + 8)
    targets = n * (size - 1) * 4 * d
    return round(features + targets)


def work(rank: int, size: int, port: int, n: int, d: int, classes: int, place: str) -> None:
    from ldmnet import ManifoldRegularizer

    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    y = torch.arange(n) * classes // n
    index = torch.arange(n)[rank::size]
    draw = torch.Generator().manual_seed(rank)
    centres = 3 * torch.randn(classes, d, generator=torch.Generator().manual_seed(99))
    plane = torch.randn(4, d, generator=torch.Generator().manual_seed(98))
    f = centres[y[index]] + torch.randn(len(index), 4, generator=draw) @ plane
    f += 0.1 * torch.randn(f.shape, generator=draw)
    regularizer = ManifoldRegularizer(None, y, mu=0.01, lambda_tilde=0.05)
    warm = ManifoldRegularizer(None, torch.arange(400) % 4, mu=0.01, lambda_tilde=0.05)
    warm.step(torch.randn(400, 8, generator=torch.Generator().manual_seed(0)))  # libraries load what they need
    if size > 1:
        dist.barrier()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, moved, started = resident("VmRSS"), loopback(), time.perf_counter()
    regularizer.step(f, index)
    seconds = time.perf_counter() - started
    if size > 1:
        dist.barrier()
    world = regularizer._world
    found = {
        "peak": resident("VmHWM") - before - n * d * 4,
        "seconds": round(seconds, 2),
        "phases": {name: round(value, 2) for name, value in regularizer.log[-1].seconds.items()},
        "loopback": loopback() - moved,
        "payload": 0 if world is None else world.sent,
    }
    Path(place, f"{rank}.json").write_text(json.dumps(found))
    os._exit(0)


def main() -> None:
    from workers import free_port, fresh_processes

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[20_000, 200_000, 1_000_000])
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "benchmarks" / "distributed.json")
    options, context = parser.parse_args(), fresh_processes()
    rows = json.loads(options.output.read_text()) if options.output.exists() else []
    for n in options.n:
        classes = 1 if n <= 20 * PER_CLASS else n // PER_CLASS
        for size in options.processes:
            with tempfile.TemporaryDirectory() as place:
                port = free_port()
                started = [
                    context.Process(target=work, args=(rank, size, port, n, options.d, classes, place))
                    for rank in range(size)
                ]
                for process in started:
                    process.start()
                for process in started:
                    process.join()
                ranks = [json.loads(Path(place, f"{rank}.json").read_text()) for rank in range(size)]
            row = {
                "n": n,
                "d": options.d,
                "classes": classes,
                "processes": size,
                "peak_mb": round(max(rank["peak"] for rank in ranks) / 1e6, 1),
                "bytes_moved": max(rank["loopback"] for rank in ranks) if size > 1 else 0,
                "payload": sum(rank["payload"] for rank in ranks),
                "formula": expected_bytes(n, options.d, size) if classes > 1 else None,
                "seconds": max(rank["seconds"] for rank in ranks),
                "phases": ranks[0]["phases"],
                "load": round(os.getloadavg()[0], 1),
            }
            key = ("n", "d", "classes", "processes")
            rows = [old for old in rows if any(old[name] != row[name] for name in key)] + [row]
            print(json.dumps(row), flush=True)
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(sorted(rows, key=lambda r: [r[k] for k in key]), indent=1) + "\n")


if __name__ == "__main__":
    main()
