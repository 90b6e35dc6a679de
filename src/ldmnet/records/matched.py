"""Records of matching for people: a row's name, one line per row, and the figures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from ldmnet.palette import title_of
from ldmnet.records.figures import cmc_figure, people_figure
from ldmnet.records.record import Record
from ldmnet.records.tables import mean_and_spread

HEAD = ("method", "rank-1 %", "at 1 %", "at 0.1 %", "splits", "settings")


def row_title(record: Record) -> str:
    """A row's name for people; settings that nobody tuned are not called tuned."""
    if record.method == "ldmnet_tuned" and record.selection != "validation":
        method = record.settings["embedding"]["method"]
        return f"LDMNet, mu {method['mu']:g}, lambda {method['lambda_tilde']:g}"
    return title_of(record.method) + (", as printed" if record.method == "ldmnet" else "")


def heading(records: Sequence[Record]) -> str:
    """What was matched with what."""
    first = records[0]
    gallery, probes = first.more["modalities"]
    left_out = f", {first.more['left_out']} more of people outside it" if first.more["left_out"] else ""
    return (
        f"{first.table}: {first.n_test} probes ({probes}) against a gallery of {first.more['n_gallery']} ({gallery})"
        f"{left_out}"
    )


def matched_rows(records: Sequence[Record]) -> list[tuple[bool, list[str]]]:
    """One line per method under `HEAD`: rank-1 and verification, mean and deviation over the splits; and the best."""
    by_row: dict[str, list[Record]] = {}
    for record in records:
        by_row.setdefault(record.method, []).append(record)
    scores = {row: mean_and_spread(record.score for record in found) for row, found in by_row.items()}
    best, lines = max((mean for mean, _ in scores.values() if mean is not None), default=None), []
    for row, found in by_row.items():
        mean, std = scores[row]
        title, splits, settings = row_title(found[0]), str(len(found)), found[0].selection
        if mean is None:
            diverged = sum(bool(r.diverged) for r in found)
            lines.append((False, [title, "diverged", "", "", splits, f"{settings}, {diverged} diverged"]))
            continue
        rates = []
        for rate in ("0.01", "0.001"):
            shares = [share for r in found if (share := r.more["verification"][rate]) is not None]
            rates.append(f"{statistics.fmean(shares):.1f}" if shares else "")
        number = f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}")
        lines.append((mean == best, [title, number, *rates, splits, settings]))
    return lines


def draw(records: Sequence[Record], output: Path) -> list[Path]:
    """Figure 2 from the records that hold its points, and the mean CMC curves; of runs that did not diverge."""
    records = [record for record in records if record.score is not None]
    shown = [record for record in records if "figure2" in record.more]
    pictures = []
    if shown:
        panels = {f"{row_title(r)}: {r.accuracy:.1f} %": r.more["figure2"] for r in shown}
        count = max(max(points["person"]) for points in panels.values()) + 1
        strangers = all("both train and are tested" not in r.data_note for r in shown)
        title = f"{count} identities{' not seen in training' if strangers else ''}, PCA to two dimensions"
        pictures.append(people_figure(panels, shown[0].more["modalities"], output / "figure2.png", title=title))
    curves = {}
    for row in dict.fromkeys(record.method for record in records):
        found = [record for record in records if record.method == row]
        shares = zip(*(record.more["cmc"] for record in found), strict=False)
        curves[row] = row_title(found[0]), [statistics.fmean(of_rank) for of_rank in shares]
    pictures.append(cmc_figure(curves, output / "cmc.png", title=f"{records[0].table}: cumulative matches"))
    return pictures
