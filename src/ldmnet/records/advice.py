"""Which of the methods of a comparison to use: a sentence or two, from its records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ldmnet.records.comparison import REFERENCE, ComparedRow, compared_rows, sees_test, split_p
from ldmnet.records.leads import paired
from ldmnet.records.record import Record
from ldmnet.records.tables import words

NOISE = 0.05  # p-values from here on tell nothing apart


def advice(records: Sequence[Record]) -> str:
    """Say which of the compared methods to use on this data, and whether LDMNet is one of them.

    Methods that the paired test cannot tell from the best one are as good, unless their mean is below that of one that
    it can; of these the one that trains soonest is advised. Transductive ones, which need the test inputs, and methods
    that diverged or ended badly on any split are left aside. Nothing is said of fewer than two methods or splits.
    """
    rows = [row for row in compared_rows(records) if _counts(row)]
    if len(rows) < 2 or min(row.splits for row in rows) < 2:
        return ""
    by_method = {row.method: {r.seed: r for r in records if r.method == row.method} for row in rows}
    best = max(rows, key=lambda row: (row.mean or 0.0, -(row.seconds or 0.0)))
    rows = [row for row in rows if row is best or paired(by_method[best.method], by_method[row.method])]
    gains = {row.method: paired(by_method[best.method], by_method[row.method]) for row in rows if row is not best}
    behind = {method: statistics.fmean(gain) for method, gain in gains.items()}
    p = {method: split_p(gain, next(iter(by_method[method].values()))) for method, gain in gains.items()}
    unsure = [method for method, value in p.items() if value is None or value >= NOISE]  # None: one common split
    worse = min((behind[m] for m in behind if m not in unsure), default=math.inf)
    as_good = [best.method, *(m for m in unsure if behind[m] < worse)]
    said = f"advice: {words(best.method)} is best here, {best.mean:.2f} %"
    if len(as_good) > 1:
        others = ", ".join(words(method) for method in as_good[1:])
        soonest = words(min((row for row in rows if row.method in as_good), key=lambda row: row.seconds or 0.0).method)
        said += f"; as good, within the noise of {best.splits} splits: {others}. {soonest} trains soonest of these."
    elif unsure:
        others = ", ".join(map(words, unsure))
        said += f", ahead of all others; {best.splits} splits are too few to be sure of that for {others}."
    else:
        said += ", clearly ahead of all others."
    if REFERENCE in unsure and REFERENCE not in as_good:
        said += f" LDMNet is {behind[REFERENCE]:.2f} points behind on average: more splits would tell."
    elif REFERENCE in by_method and REFERENCE not in as_good:
        said += f" LDMNet is not the tool here: {words(best.method)} is better by {behind[REFERENCE]:.2f} points."
    elif REFERENCE in as_good and len(as_good) > 1:
        said += " LDMNet is one of several that do."
    return said


def _counts(row: ComparedRow) -> bool:
    return row.mean is not None and not row.ended_badly and not sees_test(row.method)
