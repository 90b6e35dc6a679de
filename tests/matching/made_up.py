"""Made-up people in two modalities, for several tests."""

import numpy as np
import torch

from ldmnet.matching.table import MatchTable


def people_table(people=8, images=3, d=12, seed=0, noise=0.1):
    """Every person a direction; the second modality is the first one reflected and shifted."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(people, d))
    x, identity, modality = [], [], []
    for m in (0, 1):
        for person in range(people):
            for _ in range(images):
                sample = centre[person] + noise * rng.normal(size=d)
                x.append(np.roll(sample, 1) + 1 if m else sample)
                identity.append(person)
                modality.append(m)
    return MatchTable(
        "made up",
        torch.tensor(np.array(x), dtype=torch.float32),
        torch.tensor(identity),
        torch.tensor(modality),
        tuple(map(str, range(people))),
        ("A", "B"),
    )


def yaleb_file(folder, people=9, seed=0):
    """A file in the layout of Extended Yale B: per person 3 lights from the front, 4 from the side, 1 in between."""
    rng = np.random.default_rng(seed)
    azimuth = [0, 10, -25, 60, -85, 110, 0, 40]
    elevation = [0, 10, 0, 20, 0, 40, 90, 0]
    faces = rng.integers(0, 256, (people, 16, 12))
    shade = np.linspace(-1, 1, 12)
    x, subject = [], []
    for person in range(people):
        for a in azimuth:
            x.append(np.clip(faces[person] * (1 + 0.5 * np.sign(a) * shade) + rng.normal(0, 5, (16, 12)), 0, 255))
            subject.append(person)
    (folder / "faces").mkdir(parents=True)
    path = folder / "faces" / "yaleb_96x84.npz"
    np.savez(
        path,
        x=np.array(x).astype(np.uint8),
        subject=np.array(subject),
        azimuth=np.tile(azimuth, people),
        elevation=np.tile(elevation, people),
    )
    return path
