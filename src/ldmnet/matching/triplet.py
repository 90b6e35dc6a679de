"""Triplet embedding: a person's images nearer to each other than to anybody else's, by a margin.

Distances are squared and Euclidean between features of norm 1, so between 0 and 4.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ldmnet.errors import DivergenceError, InputError
from ldmnet.seeds import generator
from ldmnet.training.history import Epoch
from ldmnet.training.progress import OnEpoch
from ldmnet.training.settings import TrainSettings

IMAGES_A_PERSON = 4  # in a batch


def triplet_loss(features: Tensor, identity: Tensor, margin: float) -> tuple[Tensor, float]:
    """The mean of max(0, margin + |a - p|^2 - |a - n|^2) over a batch's triplets that break the margin.

    Args:
        features: (b, d), any norm.
        identity: (b,) whose they are.
        margin: above zero.

    Returns:
        The loss, zero with zero gradient where every margin is met, and the share of triplets that meet it.
    """
    unit = F.normalize(features, dim=1)
    distance = 2 - 2 * unit @ unit.T
    same = identity[:, None] == identity
    positive = same & ~torch.eye(len(identity), dtype=torch.bool, device=features.device)
    anchor, partner = positive.nonzero(as_tuple=True)
    excess = margin + distance[anchor, partner][:, None] - distance[anchor]  # (pairs, b)
    broken = ~(excess <= 0) & ~same[anchor]  # NaN is broken too
    triplets = int((~same[anchor]).sum())
    loss = excess.where(broken, torch.zeros_like(excess)).sum() / broken.sum().clamp_min(1)
    return loss, 1 - int(broken.sum()) / max(triplets, 1)


def balanced_batches(identity: Tensor, batch_size: int, draw: torch.Generator) -> Iterator[Tensor]:
    """One epoch of batches of rows, a few images of each of several people; everybody comes up equally often."""
    members = [rows for person in torch.unique(identity) if len(rows := (identity == person).nonzero().flatten()) > 1]
    if len(members) < 2:
        raise InputError(f"triplets need two identities with two samples each, got {len(members)} with two or more.")
    people_a_batch = max(2, batch_size // IMAGES_A_PERSON)
    batches = max(1, math.ceil(len(identity) / batch_size))
    order: list[int] = []
    for _ in range(batches):
        while len(order) < min(people_a_batch, len(members)):
            order += [p for p in torch.randperm(len(members), generator=draw).tolist() if p not in order]
        chosen, order = order[:people_a_batch], order[people_a_batch:]
        yield torch.cat([members[p][torch.randperm(len(members[p]), generator=draw)[:IMAGES_A_PERSON]] for p in chosen])


def fit_triplet(
    features: nn.Module,
    x: Tensor,
    identity: Tensor,
    *,
    margin: float,
    settings: TrainSettings,
    on_epoch: OnEpoch | None = None,
) -> dict[str, float]:
    """Train a network's feature part in place by SGD.

    Returns:
        The seconds spent, by phase. `on_epoch` sees the share of triplets that meet the margin as the accuracy.

    Raises:
        DivergenceError: the loss is not finite. The network is left as it was before that epoch.
    """
    optimizer = torch.optim.SGD(features.parameters(), lr=settings.lr, momentum=settings.momentum)
    draw = generator(settings.seed, "batches")
    started = time.perf_counter()
    features.train()
    for number in range(settings.epochs):
        lr = settings.lr_at(number)
        good = copy.deepcopy(features.state_dict())
        for group in optimizer.param_groups:
            group["lr"] = lr
        losses, shares = [], []
        for rows in balanced_batches(identity, settings.batch_size, draw):
            loss, share = triplet_loss(features(x[rows]), identity[rows], margin)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(float(loss.detach()))
            shares.append(share)
        epoch = Epoch(number, lr, sum(losses) / len(losses), 0.0, sum(shares) / len(shares))
        if not math.isfinite(epoch.loss):
            features.load_state_dict(good)
            raise DivergenceError(
                f"the triplet loss is not finite in epoch {number} (counted from 0). Lower lr: {lr:g}."
            )
        if on_epoch is not None:
            on_epoch(epoch)
    return {"train": time.perf_counter() - started}
