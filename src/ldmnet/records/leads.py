"""What LDMNet has over the others, seed by seed; and which part of it is the pull's, which the graph's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ldmnet.palette import TUNED
from ldmnet.records.record import Record
from ldmnet.records.tables import cells_of, markdown, rank, size_word, words

OURS = ("ldmnet", "ldmnet" + TUNED)


def paired(ours: Mapping[int, Record], theirs: Mapping[int, Record]) -> list[float]:
    """The differences in accuracy on the seeds that both have, on the same data; none if a run among them diverged."""
    common = [seed for seed in sorted(ours.keys() & theirs.keys()) if ours[seed].data == theirs[seed].data]
    pairs = [(ours[seed].score, theirs[seed].score) for seed in common]
    apart = [a - b for a, b in pairs if a is not None and b is not None]
    return apart if len(apart) == len(pairs) else []


def _mean_and_error(apart: Sequence[float]) -> str:
    if not apart:
        return ""
    return f"{statistics.fmean(apart):+.2f}" + (f" ± {standard_error(apart):.2f}" if len(apart) > 1 else "")


def standard_error(apart: Sequence[float]) -> float:
    """Of the mean of some differences; zero for one of them."""
    return statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0


def format_leads(records: Iterable[Record], table: str) -> str:
    """What LDMNet's rows have over every other row, as Markdown: mean ± standard error of the differences, by seed.

    A seed counts where both rows have it on the same data; nothing is said of a pair with a run that diverged, or
    without a common seed.
    """
    cells = cells_of(records, table)
    methods = sorted({method for _, method in cells}, key=rank)
    ours, others = ([m for m in methods if (m in OURS) is side] for side in (True, False))
    sized = {size for size, _ in cells} != {None}
    # with sizes the tuned rows of the others go below their printed ones, as in the table; without, all go side by side
    split = sized and any(m.endswith(TUNED) for m in others)
    kinds = {"": ["printed"], TUNED: ["tuned"]} if split else {"": []}
    across = list(dict.fromkeys(m.removesuffix(TUNED) for m in others)) if split else others
    lines = [["per class", "of", *(["their settings"] if split else []), *[f"over {words(m)}" for m in across]]]
    for size in sorted({size for size, _ in cells}, key=lambda size: (size is None, size)):
        for row in ours:
            for kind, settings in kinds.items():
                differences = [_mean_and_error(paired(cells[size, row], cells[size, other + kind])) for other in across]
                if any(differences):
                    lines.append([size_word(size), words(row), *settings, *differences])
    return markdown(lines if sized else [line[1:] for line in lines])


@dataclass(frozen=True)
class Parts:
    """Where LDMNet's gain comes from in one cell of a table, seed by seed.

    Attributes:
        table: the table's name.
        per_class: training images per class, None for all.
        selection: how the settings of all three rows were chosen.
        pull: the control less no regulariser, on the seeds of `graph`; empty where one of those is missing.
        graph: LDMNet less the control.
    """

    table: str
    per_class: int | None
    selection: str
    pull: list[float]
    graph: list[float]

    @property
    def settings(self) -> str:
        """How they were chosen, in the tables' words: printed, tuned or default."""
        return "tuned" if self.selection == "validation" else self.selection


def parts_of(records: Iterable[Record]) -> list[Parts]:
    """The parts of every cell that has LDMNet and its control, with settings chosen in the same way."""
    tested = [record for record in records if not record.validates]
    parts = []
    for table in dict.fromkeys(record.table for record in tested):
        cells: dict[tuple[int | None, str], dict[str, dict[int, Record]]] = {}
        for (size, method), by_seed in cells_of(tested, table).items():
            selection = next(iter(by_seed.values())).selection
            cells.setdefault((size, selection), {})[method.removesuffix(TUNED)] = by_seed
        for (size, selection), rows in sorted(cells.items(), key=lambda cell: (cell[0][0] or 0, cell[0][1])):
            none, control, ldmnet = (rows.get(name, {}) for name in ("none", "control", "ldmnet"))
            shared = {seed: control[seed] for seed in control.keys() & ldmnet.keys()}
            pull = paired(shared, none) if shared.keys() <= none.keys() else []
            if graph := paired(ldmnet, shared):
                parts.append(Parts(table, size, selection, pull, graph))
    return parts


def format_parts(parts: Sequence[Parts]) -> str:
    """The parts as Markdown: mean ± standard error over seeds, in points."""
    lines = [["data", "per class", "settings", "the pull adds", "the graph adds", "seeds"]]
    for part in parts:
        size = "" if part.per_class is None else size_word(part.per_class)
        gains = [_mean_and_error(part.pull), _mean_and_error(part.graph)]
        lines.append([part.table, size, part.settings, *gains, str(len(part.graph))])
    return markdown(lines)
