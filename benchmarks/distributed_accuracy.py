"""Accuracy on MNIST, 100 images per class, three seeds: by one process, or by those of torchrun.

    python benchmarks/distributed_accuracy.py
    torchrun --standalone --nproc-per-node=2 benchmarks/distributed_accuracy.py

A network of two hidden layers, 40 epochs, LDMNet by default. Each call adds its line to
results/benchmarks/distributed-accuracy.jsonl.
"""

import json
import os
from pathlib import Path

import torch

from ldmnet import Method, TrainSettings, fit
from ldmnet.data import load, stratified
from ldmnet.networks import initialize, mlp

OUTPUT = Path(__file__).parents[1] / "results" / "benchmarks" / "distributed-accuracy.jsonl"


def main() -> None:
    torch.set_num_threads(1)
    data, accuracies = load("mnist"), []
    test = data.x_test.flatten(1).float() / 255, data.y_test
    for seed in range(3):
        rows = stratified(data.y_train, 100, seed)
        model = mlp(784, 10, (256, 256))
        initialize(model, "he", seed)
        result = fit(
            model,
            (data.x_train[rows].flatten(1).float() / 255, data.y_train[rows]),
            method=Method(name="ldmnet", features="sweep"),
            settings=TrainSettings(epochs=40, lr=0.05, batch_size=50, seed=seed),
            test=test,
            progress=False,
        )
        accuracies.append(round(100 * (result.test_accuracy or 0.0), 2))
    if os.environ.get("RANK", "0") == "0":
        line = {"processes": int(os.environ.get("WORLD_SIZE", "1")), "accuracy": accuracies}
        print(json.dumps(line))
        with OUTPUT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
