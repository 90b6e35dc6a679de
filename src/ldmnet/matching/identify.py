"""Who is it: probes matched against a gallery by cosine similarity.

The gallery may hold several images of a person: the best one counts. Ties count against the person, so that features
that have collapsed to one point identify nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ldmnet.errors import InputError

FALSE_ACCEPT_RATES = (0.01, 0.001)
TIE = 1e-12  # cosines that are nearer to each other differ by rounding only


@dataclass(frozen=True, eq=False)
class Identification:
    """How well probes were matched.

    Attributes:
        cmc: (number of gallery people,) the share of probes whose person is among the first r, r from 1.
        verification: the share of genuine pairs accepted at each false-accept rate; None where the gallery holds
            no pair of different people.
        n_probes: probes in the CMC.
        left_out: probes whose person is not in the gallery: not in the CMC, impostors in the verification.
    """

    cmc: Tensor
    verification: dict[float, float | None]
    n_probes: int
    left_out: int

    @property
    def rank1(self) -> float:
        """The share of probes whose nearest gallery image shows their person."""
        return float(self.cmc[0])


def cosine_similarity(probes: Tensor, gallery: Tensor) -> Tensor:
    """(n_probes, n_gallery) cosines in float64; a zero vector has cosine 0 with everything."""
    for name, features in (("probe", probes), ("gallery", gallery)):
        _check_features(features, name)
    if probes.shape[1] != gallery.shape[1]:
        raise InputError(
            f"probe features have {probes.shape[1]} columns but gallery features have {gallery.shape[1]}. "
            "Embed both with the same network."
        )
    return F.normalize(probes.double(), dim=1) @ F.normalize(gallery.double(), dim=1).T


def identify(
    probes: Tensor,
    probe_identity: Tensor,
    gallery: Tensor,
    gallery_identity: Tensor,
    *,
    false_accept_rates: Sequence[float] = FALSE_ACCEPT_RATES,
) -> Identification:
    """Match every probe against the gallery.

    Args:
        probes: (n, d) features.
        probe_identity: (n,) whose they are, whole numbers.
        gallery: (m, d) features.
        gallery_identity: (m,) whose they are.
        false_accept_rates: where the verification rate is wanted, each from 0 to 1.
    """
    for name, features, identity in (("probe", probes, probe_identity), ("gallery", gallery, gallery_identity)):
        if identity.shape != (len(features),):
            raise InputError(f"there are {len(features)} {name} features but {tuple(identity.shape)} identities.")
    similarity = cosine_similarity(probes, gallery)
    people, column = torch.unique(gallery_identity, return_inverse=True)
    known = torch.isin(probe_identity, people)
    if not bool(known.any()):
        raise InputError(
            f"none of the {len(probes)} probes shows a person of the gallery ({len(people)} people): "
            "nothing can be identified. Check the identities of both."
        )
    best = similarity.new_full((len(probes), len(people)), -torch.inf)
    best.scatter_reduce_(1, column.expand_as(similarity), similarity, "amax")  # a person's best image
    own = best[known].gather(1, torch.searchsorted(people, probe_identity[known])[:, None])
    rank = (best[known] >= own - TIE).sum(1) - 1  # its own is among them
    cmc = torch.bincount(rank, minlength=len(people)).double().cumsum(0) / len(rank)
    genuine = probe_identity[:, None] == gallery_identity
    return Identification(
        cmc=cmc,
        verification={
            rate: verification_rate(similarity[genuine], similarity[~genuine], rate) for rate in false_accept_rates
        },
        n_probes=int(known.sum()),
        left_out=int((~known).sum()),
    )


def verification_rate(genuine: Tensor, impostor: Tensor, false_accept_rate: float) -> float | None:
    """The share of genuine scores above the lowest threshold that accepts no more impostors than allowed.

    Args:
        genuine: scores of pairs that show one person.
        impostor: scores of pairs that show two.
        false_accept_rate: the share of impostors that may pass, from 0 to 1.

    Returns:
        None if there are no genuine or no impostor pairs.
    """
    if not 0 <= false_accept_rate <= 1:
        raise InputError(f"a false-accept rate is from 0 to 1, got {false_accept_rate}.")
    if len(genuine) == 0 or len(impostor) == 0:
        return None
    allowed = int(false_accept_rate * len(impostor) + 1e-9)
    if allowed == len(impostor):
        return 1.0
    threshold = torch.topk(impostor, allowed + 1).values[-1]
    return float((genuine > threshold).double().mean())


def _check_features(features: Tensor, name: str) -> None:
    if features.ndim != 2 or len(features) == 0:
        raise InputError(f"{name} features must have shape (n, d) with n at least 1, got {tuple(features.shape)}.")
    bad = (~torch.isfinite(features)).any(1).nonzero().flatten()
    if len(bad):
        raise InputError(
            f"{name} features have NaN or infinite values in {len(bad)} of {len(features)} rows, the first in row "
            f"{int(bad[0])}. Mend the extractor or its inputs, or train with a lower learning rate."
        )
