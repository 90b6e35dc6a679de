"""One pool of four processes for the whole test run, on loopback, at a port that is free: `pool(size, job, ...)`."""

import multiprocessing
import os
import socket
import traceback
from datetime import timedelta

SIZE = 4
WAIT = 120  # seconds for one job


def fresh_processes():
    """Starts processes from one that has imported what they need, and nothing else."""
    context = multiprocessing.get_context("forkserver")
    preload = ["torch.distributed", "torch._dynamo", "ldmnet", "ldmnet.data"]  # the second is what optimizers import
    context.set_forkserver_preload(preload)
    return context


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def work(rank, port, pipe):
    """A process of the pool: makes one group of each size, then does jobs until it is told to end."""
    import warnings

    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=SIZE)
    limit = timedelta(seconds=30)
    groups = {size: dist.new_group(list(range(size)), timeout=limit) for size in range(1, SIZE + 1)}
    while True:
        told = pipe.recv()
        if told is None:
            break
        size, job, args = told
        try:
            pipe.send((True, job(groups[size], *args)))
        except Exception as error:
            pipe.send((False, (error, traceback.format_exc())))
    os._exit(0)  # nobody waits for a farewell


class Pool:
    def __init__(self):
        context, port = fresh_processes(), free_port()
        pipes = [context.Pipe() for _ in range(SIZE)]
        self.pipes = [mine for mine, _ in pipes]
        self.processes = [
            context.Process(target=work, args=(rank, port, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()

    def __call__(self, size, job, *args, fails=False):
        """What each of `size` processes returned from job(group, *args); with `fails`, the errors they raised."""
        for pipe in self.pipes[:size]:
            pipe.send((size, job, args))
        answers = []
        for pipe in self.pipes[:size]:
            assert pipe.poll(WAIT), "a process of the pool does not answer"
            answers.append(pipe.recv())
        for good, answer in answers:
            assert good is not fails, answer if fails else answer[1]
        return [answer[0] if fails else answer for _, answer in answers]

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
