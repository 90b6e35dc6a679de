"""Processes that train together, of which one dies or hangs on purpose: for the tests and the script of kills."""

import hashlib
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import torch

from ldmnet import Method, TrainSettings, fit
from ldmnet.distributed import Sharing, World
from ldmnet.errors import DistributedError
from ldmnet.seeds import generator
from ldmnet.training import checkpoint as checkpoints

EPOCHS = 8


def samples(n=180, d=5):
    y = torch.arange(n) % 3
    return torch.randn(n, d, generator=generator(0, "victims")) + 3 * torch.eye(d)[y], y


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    os.kill(os.getpid(), signal.SIGSTOP)


def prepare(end, when, count):
    """Make this process end by `end` at its count-th message, half-way through a save, or after an epoch."""
    seen = [0]

    def counted():
        seen[0] += 1
        if seen[0] == count:
            end()

    if when == "message":
        for name in ("every", "objects", "exchange", "from_first"):
            plain = getattr(World, name)

            def call(self, *args, _plain=plain):
                counted()
                return _plain(self, *args)

            setattr(World, name, call)
    if when == "save":

        def sha256(content):  # the content is written, its seal is not, and the file has not its name yet
            counted()
            return hashlib.sha256(content)

        checkpoints.hashlib = SimpleNamespace(sha256=sha256)
    return (lambda epoch: counted()) if when == "epoch" else (lambda epoch: None)


def train(rank, size, port, folder, end=None, when="", count=0, timeout=20.0):
    """Train in one of `size` processes; writes how it ended, and with which weights, into the folder."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    from ldmnet.distributed import launch

    launch.multiprocessing = None  # this process was started by another, and yet is one of torchrun's
    launch.launched = lambda: size > 1
    on_epoch = prepare(end, when, count) if end is not None else (lambda epoch: None)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    settings = TrainSettings(epochs=EPOCHS, lr=0.05, batch_size=30, checkpoint_every=1)
    note = Path(folder, f"ended-{rank}")
    started = time.monotonic()
    try:
        result = fit(
            model,
            samples(),
            method=Method(name="ldmnet", features="sweep"),
            settings=settings,
            layer="1",
            checkpoint=Path(folder, "checkpoint.pt"),
            on_epoch=on_epoch,
            progress=False,
            sharing=Sharing(timeout=timeout, shard_from=20),
        )
    except DistributedError as error:
        note.write_text(f"DistributedError after {time.monotonic() - started:.1f} s: {error}")
        os._exit(1)
    torch.save([model.state_dict(), result.regularizer.target, len(result.history)], Path(folder, f"result-{rank}.pt"))
    note.write_text("finished")


def run(context, port, folder, size, victim=None, end=None, when="", count=0, timeout=20.0, limit=90.0):
    """Start `size` processes, of which one may have its end prepared; the seconds until the others had ended.

    A process that hangs is killed once the others are gone.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    processes = []
    for rank in range(size):
        mine = (end, when, count) if rank == victim else (None, "", 0)
        process = context.Process(target=train, args=(rank, size, port, str(folder), *mine, timeout))
        process.start()
        processes.append(process)
    for rank, process in enumerate(processes):
        if rank != victim or end is not hang:
            process.join(max(0.1, started + limit - time.monotonic()))
            if process.is_alive():
                process.kill()
                raise AssertionError(f"process {rank} did not end within {limit:g} s")
    spent = time.monotonic() - started
    if victim is not None:
        processes[victim].kill()
        processes[victim].join()
    return spent, [process.exitcode for process in processes]
