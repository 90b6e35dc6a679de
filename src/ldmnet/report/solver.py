"""The solver's health: what every update of a group of runs met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ldmnet.pim.chebyshev import COUPLING_FROM
from ldmnet.report.collect import Run
from ldmnet.report.groups import Group, Series
from ldmnet.report.plots import Line, Measure, Part, lines_plot
from ldmnet.report.tables import plain

MEASURES = (
    Measure("solver_steps", "Products with the matrix", "How many steps the iterative solver took; a direct solve "
            "takes none.", "products"),
    Measure("residual", "Largest relative residual", "How far the linear system is from being solved exactly; 1e-5 or "
            "less is the aim.", "residual", "log"),
    Measure("dual", "Norm of the dual variable Z", "Z sums up what earlier updates could not yet pull; it settles as "
            "features and targets agree.", "|Z|"),
    Measure("energy", "Dirichlet energy, after an update over before", "How rough the features are over the graph "
            "after an update, as a share of before; below 1, the update smooths them.", "ratio"),
)  # fmt: skip


def solver(number: int, group: Group) -> Part:
    """Show what the solver met at every update."""
    part = Part(group.title)
    logged = [(series, run) for series in group.series if (run := _updated(series)) is not None]
    if not logged:
        seen = {status for run in group.runs for status in run.statuses}
        part.notes.append(
            f"These runs kept no log of their updates; the records say that the solver ended with: {_statuses(seen)}."
            if seen
            else "These runs kept no log of updates: none of their methods makes any, or it was not written."
        )
        return part
    rows = []
    for series, run in logged:
        count = Counter(str(update["status"]) for update in run.updates)
        used = Counter(solver_of(update, run.mass) for update in run.updates)
        rows.append(
            [
                series.label,
                ", ".join(used),
                str(len(run.updates)),
                ", ".join(f"{_statuses([status])} {times}" for status, times in count.items()),
                str(max(update["solver_steps"] for update in run.updates)),
                f"{max(update['residual'] for update in run.updates):.1e}",
            ]
        )
    head = ["method", "solver", "updates", "how they ended", "most products", "largest residual"]
    part.tables.append(plain("How the updates went", head, rows))
    for measure in MEASURES:
        lines = [Line.over(series, [run.updates], measure) for series, run in logged]
        if any(v for line in lines for v in line.values):
            part.plots.append(lines_plot(f"{measure.name}-{number}", measure, [line for line in lines if line.any]))
    return part


def verdict(groups: Iterable[Group]) -> tuple[str, bool]:
    """Say in a sentence how the updates ended, and whether any ended badly."""
    count = Counter(status for group in groups for run in group.runs for status in run.statuses)
    bad = {status: times for status, times in count.items() if status != "CONVERGED"}
    if not count:
        return "No method here makes updates, or their log was not kept", False
    if not bad:
        return "Every logged update was solved to the tolerance (details)", False
    words = ", ".join(f"{_statuses([status])} {times}" for status, times in bad.items())
    return f"Not every update was solved to the tolerance: {words}", True


def solver_of(update: Mapping[str, Any], mass: str) -> str:
    """Name the solver that an update used, by the rules of `ldmnet.pim.grouped`.

    A direct solve takes no product with the matrix; an iteration is Chebyshev's where the mass is lumped and
    mu / lambda_tilde is not very small, and conjugate gradients elsewhere. The control has no system to solve.
    """
    mu, lambda_tilde = update.get("mu"), update.get("lambda_tilde")
    if not update["solver_steps"]:
        return "none needed" if lambda_tilde == 0 else "direct (Cholesky)"
    if not mu or not lambda_tilde:  # written before these numbers were kept
        return "iterative"
    known = mass == "lumped" and mu / lambda_tilde >= (1 - 1e-9) * COUPLING_FROM
    return "Chebyshev's iteration" if known else "conjugate gradients"


def _updated(series: Series) -> Run | None:
    return next((run for run in (series.traced, *series.runs) if run.updates), None)


def _statuses(names: Iterable[str]) -> str:
    return ", ".join(sorted(name.lower().replace("_", " ") for name in names))
