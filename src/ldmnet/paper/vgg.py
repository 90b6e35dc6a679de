"""The VGG-16 row of Table 7: a network trained with weight decay and DropOut, then fine-tuned with LDMNet.

The paper does not say how it was fine-tuned. Here every row starts from the same weights, at the same learning rate,
with weight decay and DropOut still on, so that the regulariser is all that differs; the control goes on with the graph
off. The network trains on the first 10,000 images (one file of the data set) unless more are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ldmnet.errors import InputError
from ldmnet.paper import specs
from ldmnet.runs.datasets import RunSettings
from ldmnet.runs.run import Run
from ldmnet.training.methods import Method
from ldmnet.training.settings import TrainSettings

IMAGES = 10_000
BASE_EPOCHS, FINE_EPOCHS = 40, 10
BASE_LR, FINE_LR = 0.01, 0.001
DECAY = 2.5e-4  # w of eq. (24)
ROWS = ("base", "continued", "control", "ldmnet")
METHODS = {
    "continued": Method("dropout", dropout=specs.DROPOUT, weight_decay_w=DECAY),
    "control": Method("control", dropout=specs.DROPOUT, weight_decay_w=DECAY),
    "ldmnet": Method("ldmnet", dropout=specs.DROPOUT, weight_decay_w=DECAY),
}
PRINTED = {"base": specs.VGG16_BASE, "ldmnet": specs.VGG16_LDMNET}


def table_of(images: int) -> str:
    """The name of the table, and of the file of its records, for a number of training images."""
    return "vgg16" if images == IMAGES else f"vgg16-{images}"


def base_runs(seeds: Sequence[int], images: int = IMAGES) -> list[Run[RunSettings]]:
    """The networks that are fine-tuned; their weights are to be kept."""
    return [Run(table_of(images), "base", _base(seed, images), "default", PRINTED["base"]) for seed in seeds]


def fine_tuning_runs(rows: Sequence[str], seeds: Sequence[int], images: int = IMAGES) -> list[Run[RunSettings]]:
    """Each row's runs, from the weights of the base with that seed."""
    unknown = [row for row in rows if row not in METHODS]
    if unknown:
        raise InputError(f"vgg16 has no row {unknown[0]!r}. The rows: {', '.join(METHODS)}.")
    train = TrainSettings(epochs=FINE_EPOCHS, lr=FINE_LR, lr_drop_after=1.0, precision="bfloat16", checkpoint_every=1)
    return [
        Run(
            table_of(images),
            row,
            replace(_base(seed, images), method=METHODS[row], train=train, start=_base(seed, images)),
            "default",
            PRINTED.get(row),
        )
        for seed in seeds
        for row in rows
    ]


def _base(seed: int, images: int) -> RunSettings:
    return RunSettings(
        "cifar10",
        None,
        seed,
        net="vgg16",
        pixel_scale=64.0,
        init="xavier",
        method=METHODS["continued"],
        train=TrainSettings(
            epochs=BASE_EPOCHS, lr=BASE_LR, lr_drop_after=0.75, precision="bfloat16", checkpoint_every=1
        ),
        first=images,
    )
