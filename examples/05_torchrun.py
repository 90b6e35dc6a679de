"""LDMNet in a plain loop by several processes, with DistributedDataParallel and a checkpoint that any number resumes.

torchrun --standalone --nproc-per-node=2 examples/05_torchrun.py --checkpoint digits.pt
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ldmnet import IndexedDataset, ManifoldRegularizer, sweep
from ldmnet.networks import initialize, mlp
from ldmnet.training import FeatureTap


def main(epochs: int, checkpoint: Path) -> None:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.as_tensor(pixels / 8 - 1, dtype=torch.float32), torch.as_tensor(labels)
    network = mlp(64, 10, (256, 256))
    initialize(network, "he", seed=0)
    regularizer, start = ManifoldRegularizer(groups=y), 0
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    if checkpoint.exists():
        start, *states = torch.load(checkpoint, weights_only=True)
        for part, state in zip((network, optimizer, regularizer), states, strict=True):
            part.load_state_dict(state)
        print(f"resumes after epoch {start}") if dist.get_rank() == 0 else None
    samples = IndexedDataset(TensorDataset(x, y))
    sampler = DistributedSampler(samples)  # pads with samples that come twice: no harm
    model = DistributedDataParallel(network)
    for epoch in range(start, epochs):
        if regularizer.due(epoch):
            regularizer.step(sweep(model, x, layer="features"))
        sampler.set_epoch(epoch)
        with FeatureTap(model, "features") as tap:
            for index, x_b, y_b in DataLoader(samples, batch_size=32, sampler=sampler):
                scores, features = tap(x_b)
                optimizer.zero_grad()
                (cross_entropy(scores, y_b) + regularizer.penalty(features, index)).backward()
                optimizer.step()
        if dist.get_rank() == 0:
            parts = [part.state_dict() for part in (network, optimizer, regularizer)]
            torch.save([epoch + 1, *parts], checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)  # whole or not at all
            print(f"epoch {epoch + 1}: strength {regularizer.log[-1].strength:.3g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path, default=Path("digits.pt"))
    dist.init_process_group("gloo")
    main(**vars(parser.parse_args()))
    dist.destroy_process_group()
