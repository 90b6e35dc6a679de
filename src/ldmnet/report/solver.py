"""The solver's health: what every update of a group of runs met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ldmnet.report.collect import Group, Run, Series
from ldmnet.report.plots import Line, Part, color_of, lines_plot, positive
from ldmnet.report.tables import plain

SOLVER: tuple[tuple[str, str, str, bool], ...] = (
    ("solver_steps", "Iterations of the conjugate gradients", "products", False),
    ("residual", "Largest relative residual", "residual", True),
    ("dual", "Norm of the dual variable Z", "|Z|", False),
    ("energy", "Dirichlet energy after an update over before", "ratio", False),
)


def solver(number: int, group: Group) -> Part:
    """What the solver met at every update."""
    part = Part(group.title)
    logged = [series for series in group.series if _updated(series)]
    if not logged:
        seen = {status for run in group.runs for status in run.record.get("solver") or []}
        part.notes.append(
            f"These runs kept no log of their updates; the records say that the solver ended with: {_statuses(seen)}."
            if seen
            else "These runs kept no log of updates: none of their methods makes any, or it was not written."
        )
        return part
    for name, title, y, log in SOLVER:
        lines = [
            Line(
                series,
                color_of(group, series),
                [int(update["epoch"]) for update in run.updates],
                [[positive(update[name], log) for update in run.updates]],
            )
            for series, run in ((series, _updated(series)) for series in logged)
            if run is not None
        ]
        lines = [line for line in lines if any(v is not None for v in line.mean)]
        if any(v for line in lines for v in line.mean):
            part.plots.append(lines_plot(f"{name}-{number}", title, y, lines, log=log))
    rows = []
    for series in logged:
        run = _updated(series)
        assert run is not None
        count = Counter(str(update["status"]) for update in run.updates)
        rows.append(
            [
                series.label,
                str(len(run.updates)),
                ", ".join(f"{_statuses([status])} {times}" for status, times in count.items()),
                str(max(update["solver_steps"] for update in run.updates)),
                f"{max(update['residual'] for update in run.updates):.1e}",
            ]
        )
    head = ["method", "updates", "how they ended", "most iterations", "largest residual"]
    part.tables.append(plain("How the updates went", head, rows))
    if not any(plot.name.startswith("solver_steps") for plot in part.plots):
        part.notes.append(
            "No conjugate gradients were needed: small classes are solved directly, and the control solves nothing."
        )
    return part


def _updated(series: Series) -> Run | None:
    return next((run for run in (series.traced, *series.runs) if run.updates), None)


def _statuses(names: Iterable[str]) -> str:
    return ", ".join(sorted(name.lower().replace("_", " ") for name in names))
