"""The colours and names of methods and classes: the same in every figure and on the report's page.

Every colour has a contrast of at least 3 with its background, white or nearly black (a test of the report checks it).
"""

from __future__ import annotations

from typing import NamedTuple


class Color(NamedTuple):
    """One colour, for a light and for a dark background."""

    light: str
    dark: str


TUNED = "_tuned"  # behind a method's name: with settings that validation data chose
TITLES = {
    "none": "no regulariser",
    "weight_decay": "weight decay",
    "dropout": "DropOut",
    "control": "control (graph off)",
    "ldmnet": "LDMNet",
    "pca": "PCA",
    "low_rank": "low-rank",
}
METHOD_COLORS = {
    "none": Color("#5f6570", "#b4bac3"),
    "weight_decay": Color("#9a5b00", "#e3a540"),
    "dropout": Color("#a8327d", "#ef8cc8"),
    "control": Color("#00775a", "#4fcfa6"),
    "ldmnet": Color("#0b62b8", "#6db3ff"),
}
OTHER_COLORS = (
    Color("#c43c1c", "#ff8a6b"),
    Color("#6a48c8", "#b8a1ff"),
    Color("#747000", "#d6d15c"),
    Color("#7a3e2f", "#d9a08c"),
    Color("#006f86", "#5fd3e8"),
)
CLASS_COLORS = (
    Color("#0072b2", "#4db2ff"),
    Color("#c9485f", "#ff8a9e"),
    Color("#117733", "#6bcb77"),
    Color("#96601c", "#e0a860"),
    Color("#aa4499", "#e59ae5"),
    Color("#332288", "#a99bff"),
    Color("#258575", "#44ccb4"),
    Color("#81811c", "#d6d65a"),
    Color("#882255", "#d877a8"),
    Color("#4d4d4d", "#d9d9d9"),
)


def title_of(method: str) -> str:
    """Return a method's name for people."""
    plain = method.removesuffix(TUNED)
    return TITLES.get(plain, plain) + (", tuned" if plain != method else "")


def method_color(method: str, place: int = 0) -> Color:
    """Return a method's colour, tuned or not; `place` chooses one for a name that is none of the five methods."""
    return METHOD_COLORS.get(method.removesuffix(TUNED)) or OTHER_COLORS[place % len(OTHER_COLORS)]


def class_color(number: int) -> Color:
    """Return the colour of a class; with more than ten classes, colours come again."""
    return CLASS_COLORS[number % len(CLASS_COLORS)]
