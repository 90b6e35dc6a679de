"""Average ranks over data sets and the critical difference between them: functions of numbers.

As Demšar (JMLR 7, 2006) proposes: methods are ranked on every data set, Friedman's test says whether the ranks differ,
and two methods differ if their average ranks are apart by Nemenyi's critical difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ldmnet.palette import METHOD_COLORS, OTHER_COLORS

LEVEL = 0.05


def average_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean rank of every method, the best first; 1 is the best, equals share their ranks.

    Args:
        scores: by data set and method, higher is better. Methods that some data set lacks are left out.
    """
    from scipy.stats import rankdata

    if not scores:
        return {}
    names = [m for m in next(iter(scores.values())) if all(m in row for row in scores.values())]
    if not names:
        return {}
    table = [rankdata([-row[name] for name in names]) for row in scores.values()]
    means = {name: sum(float(row[i]) for row in table) / len(table) for i, name in enumerate(names)}
    return dict(sorted(means.items(), key=lambda item: item[1]))


def friedman_p(scores: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> float:
    """The p-value of Friedman's test that these methods, three or more, are alike on all data sets."""
    from scipy.stats import friedmanchisquare

    return float(friedmanchisquare(*([row[name] for row in scores.values()] for name in names)).pvalue)


def critical_difference(k: int, n: int, level: float = LEVEL) -> float:
    """Nemenyi's critical difference of average ranks of k methods on n data sets."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - level, k, math.inf)) / math.sqrt(2)
    return q * math.sqrt(k * (k + 1) / (6 * n))


def alike(ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """The largest groups of neighbours, by rank, that the critical difference does not tell apart."""
    names, groups = sorted(ranks, key=lambda name: ranks[name]), list[tuple[str, ...]]()
    for i, first in enumerate(names):
        group = tuple(name for name in names[i:] if ranks[name] - ranks[first] <= difference)
        if len(group) > 1 and not any(set(group) <= set(other) for other in groups):
            groups.append(group)
    return groups


def draw_ranks(ranks: Mapping[str, float], n: int, path: Path) -> None:
    """The critical-difference plot: methods on an axis of ranks, with a bar across those that are not told apart."""
    from ldmnet.records.figures import pyplot

    plt = pyplot()
    difference, names = critical_difference(len(ranks), n), sorted(ranks, key=lambda name: ranks[name])
    bars = alike(ranks, difference)
    figure, axis = plt.subplots(figsize=(7, 0.6 + 0.22 * len(names) + 0.12 * len(bars)))
    for place, name in enumerate(names):
        axis.plot(
            ranks[name], place, "o", color=METHOD_COLORS["ldmnet" if "ldmnet" in name else "none"].light, markersize=4
        )
        beside = {"xytext": (5, 0), "textcoords": "offset points"}
        axis.annotate(name.replace("_", " "), (ranks[name], place), va="center", fontsize=7, **beside)
    for i, group in enumerate(bars):
        axis.plot(
            [ranks[group[0]], ranks[group[-1]]], [len(names) + 0.6 * i] * 2, color=OTHER_COLORS[0].light, linewidth=2
        )
    axis.set_ylim(len(names) + 0.6 * max(len(bars), 1), -1)
    axis.set_xlim(min(ranks.values()) - 0.5, max(ranks.values()) + len(names) / 5)
    axis.set_yticks([])
    axis.set_xlabel(f"average rank on {n} data sets (1 is best); critical difference {difference:.2f}")
    for side in ("left", "right", "top"):
        axis.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", dpi=150)
    plt.close(figure)
