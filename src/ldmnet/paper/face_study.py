"""What helps LDMNet across sensors, varied one thing at a time and judged on validation people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ldmnet.matching.embeddings import EmbeddingSettings
from ldmnet.paper import specs
from ldmnet.paper.faces import EPOCHS, MU, STRENGTH, default_embedding
from ldmnet.paper.presets import Departure
from ldmnet.paper.study import named_like
from ldmnet.runs.matching import EVERYBODY, Matching, MatchSettings
from ldmnet.runs.run import Run
from ldmnet.training.methods import Method

FIRST_LAYER = "features.2"  # after its ReLU, before its DropOut


@dataclass(frozen=True)
class FaceVariation(Departure):
    """One departure from LDMNet's setting.

    Attributes:
        embedding: fields of `EmbeddingSettings` to replace.
        fewer: people, and images of each in a modality, to train on; see `MatchSettings`.
        longer: a factor on the epochs, which have few steps then.
    """

    embedding: dict[str, Any] = field(default_factory=dict)
    fewer: tuple[int, int] | None = None
    longer: int = 1


PAIRS = (15, 1)  # fifteen people, one image of each in a modality: the same training set in form, whatever the data
NONE: dict[str, Any] = {"name": "none", "mu": None, "lambda_tilde": None}
CONTROL: dict[str, Any] = {"name": "control", "lambda_tilde": None}
VARIATIONS = (
    FaceVariation(f"LDMNet, mu {MU:g}, lambda_tilde {STRENGTH:g}"),
    FaceVariation(f"control, mu {MU:g}", method=CONTROL),
    FaceVariation("control, mu 1", method={**CONTROL, "mu": 1.0}),
    FaceVariation("mu 1, lambda_tilde 1", method={"mu": 1.0}),
    FaceVariation("mu 1, lambda_tilde 5", method={"mu": 1.0, "lambda_tilde": 5.0}),
    FaceVariation("control, mu 20", method={**CONTROL, "mu": 20.0}),
    FaceVariation("mu 20, lambda_tilde 4", method={"mu": 20.0, "lambda_tilde": 4.0}),
    FaceVariation("mu 20, lambda_tilde 20", method={"mu": 20.0, "lambda_tilde": 20.0}),
    FaceVariation("lambda_tilde 0.2", method={"lambda_tilde": 0.2}),
    FaceVariation("lambda_tilde 5", method={"lambda_tilde": 5.0}),
    FaceVariation("graph on the features alone", method={"input_scale": 0.0}),
    FaceVariation("5 neighbours", method={"n_neighbors": 5, "sigma_neighbor": 3}),
    FaceVariation("weight decay beside it", method={"weight_decay_w": specs.NIR_VIS.w}),
    FaceVariation("DropOut beside it", method={"dropout": specs.DROPOUT}),
    FaceVariation("both layers", embedding={"layers": (FIRST_LAYER, "features")}),
    FaceVariation("15 pairs: no regulariser", method=NONE, fewer=PAIRS, longer=3),
    FaceVariation("15 pairs: control, mu 5", method=CONTROL, fewer=PAIRS, longer=3),
    FaceVariation("15 pairs: lambda_tilde 5", method={"lambda_tilde": 5.0}, fewer=PAIRS, longer=3),
    *(
        FaceVariation(f"{images} images per modality: {name}", method=method, fewer=(EVERYBODY, images), longer=3)
        for images in (2, 5)
        for name, method in {
            "no regulariser": NONE,
            "control, mu 5": CONTROL,
            "control, mu 20": {**CONTROL, "mu": 20.0},
            "lambda_tilde 1": {},
            "lambda_tilde 5": {"lambda_tilde": 5.0},
            "mu 20, lambda_tilde 4": {"mu": 20.0, "lambda_tilde": 4.0},
            "mu 20, lambda_tilde 20": {"mu": 20.0, "lambda_tilde": 20.0},
        }.items()
    ),
)


def study_embedding(variation: FaceVariation, epochs: int) -> EmbeddingSettings:
    """A variation's settings."""
    start = default_embedding("ldmnet_tuned", variation.longer * epochs)
    method: Method = replace(start.method, **variation.method)
    return replace(start, method=method, **variation.embedding)


def face_study_runs(what: Matching, names: Sequence[str] = (), *, epochs: int = EPOCHS) -> list[Run[MatchSettings]]:
    """Every variation, or those with one of some words in their names, on the validation people of the splits."""
    return [
        Run(
            f"study-{what.table}",
            variation.name,
            replace(what.settings(split, study_embedding(variation, epochs), validates=True), fewer=variation.fewer),
            "validation",
        )
        for split in what.splits
        for variation in named_like(VARIATIONS, names)
    ]
