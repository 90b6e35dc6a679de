"""Small data sets that several tests share."""

import numpy as np
import torch

UNEVEN = (30, 9, 5, 2, 1)  # with k = 8: truncated, exactly k + 1, fewer, a pair, one alone


def uneven_groups(seed=0, shape=(3, 2), d_feat=5, steps=3):
    """Inputs, labels and `steps` random feature matrices; shuffled, with exact duplicates in two groups.

    The duplicates stand in groups of at most k + 1 = 9, where no neighbour is cut off and ties decide nothing.
    """
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(UNEVEN)) * 3 + 2, UNEVEN)
    n = len(labels)
    inputs = rng.normal(size=(n, *shape))
    features = rng.normal(size=(steps, n, d_feat))
    for kept, copies in ((31, (33, 34, 36)), (44, (45,))):  # four alike in the group of 9; both of the pair
        for copy in copies:
            inputs[copy] = inputs[kept]
            features[:, copy] = features[:, kept]
    mixed = rng.permutation(n)
    return inputs[mixed], labels[mixed], features[:, mixed]


def cloud(n=60, d=4, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def circle(n):
    angle = torch.arange(n, dtype=torch.float64) * (2 * torch.pi / n)
    return angle, torch.stack([angle.cos(), angle.sin()], dim=1)


def sphere(n):
    """A Fibonacci lattice: even to within a few per cent everywhere."""
    i = torch.arange(n, dtype=torch.float64)
    z = 1 - (2 * i + 1) / n
    angle = i * (torch.pi * (5**0.5 - 1))
    r = (1 - z**2).sqrt()
    return torch.stack([r * angle.cos(), r * angle.sin(), z], dim=1)
