"""Every number of the paper's tables, with the table it stands in. Nothing here is ours.

Zhu, Qiu, Huang, Calderbank, Sapiro, Daubechies: LDMNet, CVPR 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """One training size of a classification table.

    Attributes:
        per_class: training images per class. MNIST's 6000 is the whole training set.
        lambda_tilde: strength of the manifold term.
        mu: weight of the augmented Lagrangian.
        w: strength of weight decay, eq. (24).
        accuracy: printed test accuracy in percent, by method.
    """

    per_class: int
    lambda_tilde: float
    mu: float
    w: float
    accuracy: Mapping[str, float]


@dataclass(frozen=True)
class PaperTable:
    """One classification experiment.

    Attributes:
        name: our name for it.
        source: the tables it is printed in.
        lr: the initial learning rate.
        rows: by training size.
    """

    name: str
    source: str
    lr: float
    rows: tuple[PaperRow, ...]

    def row(self, per_class: int) -> PaperRow:
        """The row of one training size."""
        return next(row for row in self.rows if row.per_class == per_class)


EPOCHS = 300  # section 4: 200 at the initial rate, 100 at a tenth of it
BATCH_SIZE = 100
MOMENTUM = 0.9
DROPOUT = 0.5
N_NEIGHBORS = 20
SIGMA_NEIGHBOR = 10
EPOCHS_PER_UPDATE = 2  # M
MAX_PRODUCTS = 50  # section 3.3, in the conjugate gradients


def _accuracy(weight_decay: float, dropout: float, ldmnet: float) -> dict[str, float]:
    return {"weight_decay": weight_decay, "dropout": dropout, "ldmnet": ldmnet}


MNIST = PaperTable(
    name="mnist",
    source="Tables 2 and 3",
    lr=0.001,
    rows=(
        PaperRow(50, 0.05, 0.01, 0.1, _accuracy(91.32, 92.31, 95.57)),
        PaperRow(100, 0.05, 0.01, 0.05, _accuracy(93.38, 94.05, 96.73)),
        PaperRow(400, 0.01, 0.01, 0.01, _accuracy(97.23, 97.95, 98.41)),
        PaperRow(700, 0.01, 0.01, 0.005, _accuracy(97.67, 98.07, 98.61)),
        PaperRow(1000, 0.005, 0.01, 0.005, _accuracy(98.06, 98.71, 98.89)),
        PaperRow(3000, 0.001, 0.01, 0.001, _accuracy(98.87, 99.21, 99.24)),
        PaperRow(6000, 0.001, 0.01, 0.001, _accuracy(99.15, 99.41, 99.39)),
    ),
)

SVHN = PaperTable(
    name="svhn",
    source="Tables 5 and 6",
    lr=0.005,
    rows=(
        PaperRow(50, 0.1, 0.5, 1e-6, _accuracy(71.46, 71.94, 74.64)),
        PaperRow(100, 0.05, 0.5, 1e-6, _accuracy(79.05, 79.94, 81.36)),
        PaperRow(400, 0.05, 0.5, 1e-7, _accuracy(87.38, 87.16, 88.03)),
        PaperRow(700, 0.01, 0.5, 1e-8, _accuracy(89.69, 89.83, 90.07)),
    ),
)

CIFAR10 = PaperTable(
    name="cifar10",
    source="Tables 5 and 7",
    lr=0.001,
    rows=(
        PaperRow(50, 0.01, 1.0, 5e-4, _accuracy(34.70, 35.94, 41.55)),
        PaperRow(100, 0.01, 1.0, 5e-5, _accuracy(42.45, 43.18, 48.73)),
        PaperRow(400, 0.01, 1.0, 5e-5, _accuracy(56.19, 56.79, 60.08)),
        PaperRow(700, 0.01, 1.0, 5e-7, _accuracy(61.84, 62.59, 65.59)),
    ),
)

TABLES: Mapping[str, PaperTable] = {table.name: table for table in (MNIST, SVHN, CIFAR10)}

VGG16_BASE = 87.72  # Table 7, last row: weight decay and DropOut together
VGG16_LDMNET = 88.21  # the same network fine-tuned with LDMNet


@dataclass(frozen=True)
class NirVis:
    """Section 4.3, NIR-VIS face recognition: hyperparameters, and rank-1 as (mean, standard deviation)."""

    lr: float = 0.1
    lr_decay: float = 0.99
    epochs: int = 200
    batch_size: int = 100
    width: int = 2000
    lambda_tilde: float = 5e-5
    mu: float = 5.0
    w: float = 5e-4
    pca_dimensions: int = 2000
    folds: int = 10
    pca: tuple[float, float] = (74.51, 1.28)
    triplet: tuple[float, float] = (75.96, 2.90)
    low_rank: tuple[float, float] = (80.69, 1.02)
    weight_decay: tuple[float, float] = (63.87, 1.33)
    dropout: tuple[float, float] = (66.97, 1.31)
    ldmnet: tuple[float, float] = (85.02, 0.86)


NIR_VIS = NirVis()
