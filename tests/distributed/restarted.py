"""Run by torchrun with --max-restarts=1: the first process dies after three epochs, once; the second start resumes."""

import os
import signal
import sys
from pathlib import Path

import torch
import victims

from ldmnet import Method, TrainSettings, fit


def main(folder):
    marker, done = Path(folder, "died"), []

    def on_epoch(epoch):
        done.append(epoch.epoch)
        if epoch.epoch == 3 and not marker.exists():  # told before it is saved
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    fit(
        model,
        victims.samples(),
        method=Method(name="ldmnet"),
        settings=TrainSettings(epochs=6, lr=0.05, batch_size=30, checkpoint_every=1),
        layer="1",
        checkpoint=Path(folder, "checkpoint.pt"),
        on_epoch=on_epoch,
    )
    if os.environ["RANK"] == "0":
        print(f"epochs {done}")


if __name__ == "__main__":
    main(sys.argv[1])
