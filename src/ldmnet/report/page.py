"""The page: one HTML file with its styles, its script, its data and plotly.js inside, so that it opens anywhere."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ldmnet.errors import DataError, InputError, missing_extra
from ldmnet.files import write_atomically
from ldmnet.report.collect import Group, Run, collect, groups_of
from ldmnet.report.curves import curves
from ldmnet.report.features import features
from ldmnet.report.plots import Part, Plot
from ldmnet.report.solver import solver
from ldmnet.report.tables import results, settings

MOST_BYTES = 15_000_000
FEATURE_BYTES = 6_000_000  # of snapshots and pictures together


def write_report(paths: Iterable[Path], output: Path) -> Path:
    """Write the report of some run folders and files of records.

    Args:
        paths: see `ldmnet.report.collect`.
        output: the HTML file.

    Returns:
        The file.

    Raises:
        DataError: a path cannot be shown; nothing is written then.
        MissingExtraError: the extra `report` is not installed.
    """
    if output.is_dir():
        raise InputError(f"{output} is a folder. Name a file, such as {output / 'report.html'}.")
    text = render(collect(paths))
    if len(text.encode()) > MOST_BYTES:
        raise DataError(f"the page would be larger than {MOST_BYTES // 10**6} MB. Name fewer runs.")
    write_atomically(output, text)
    return output


def render(runs: Sequence[Run]) -> str:
    """The page's text."""
    try:
        import jinja2
        from jinja2.utils import htmlsafe_json_dumps
        from markupsafe import Markup
    except ImportError as error:
        raise missing_extra("Jinja2", "report") from error
    files = resources.files("ldmnet.report")
    plotly, script = _plotly(), (files / "page.js").read_text(encoding="utf-8")
    groups = groups_of(runs)
    sections, data = _sections(groups)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((files / "page.html").read_text(encoding="utf-8"))
    return template.render(
        title=_title(groups),
        alone=len(groups) == 1,
        results=results(runs),
        sections=sections,
        settings=[(group.title, settings(group)) for group in groups],
        data=htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False),
        style=Markup((files / "style.css").read_text(encoding="utf-8")),
        plotly=Markup(plotly),
        script=Markup(script),
        script_hashes=[_hash(plotly), _hash(script)],
    )


def _title(groups: Sequence[Group]) -> str:
    shown = [group.title for group in groups]
    return "; ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the page with an id, a title, a sentence on what it shows, and what each group has to show."""

    name: str
    title: str
    words: str
    parts: list[Part]
    hint: str = ""  # for those who have a mouse


def _sections(groups: Sequence[Group]) -> tuple[list[Section], dict[str, Any]]:
    """The sections with plots, and the page's data."""
    sprites: dict[str, str] = {}
    shown, spectra, size = [], [], 0
    for number, group in enumerate(groups):
        before = sum(map(len, sprites.values()))
        if size > FEATURE_BYTES:
            note = "Left out, since the page would become too large: name fewer runs to see these."
            parts = Part(group.title, notes=[note]), Part(group.title, notes=[note])
        else:
            parts = features(number, group, sprites)
        size += sum(map(len, sprites.values())) - before + sum(_weight(plot) for plot in parts[0].plots)
        shown.append(parts[0])
        spectra.append(parts[1])
    sections = [
        Section(
            "curves",
            "Learning curves",
            "What each method met while it trained.",
            [curves(number, group) for number, group in enumerate(groups)],
            "Drag over a plot to look closer, double-click to go back.",
        ),
        Section(
            "features",
            "Features",
            "How each method's feature layer sees the same samples as training goes on. Move the sliders, or point at "
            "a sample.",
            shown,
        ),
        Section(
            "spectrum",
            "Spectrum of the features",
            "How many dimensions the features fill: around the mean of each class, or around that of all samples.",
            spectra,
        ),
        Section(
            "solver",
            "The solver's health",
            "Every update solves one linear system for new targets; this is how that went.",
            [solver(number, group) for number, group in enumerate(groups)],
        ),
    ]
    plots = {plot.name: plot.spec for section in sections for part in section.parts for plot in part.plots}
    return sections, {"plots": plots, "sprites": sprites}


def _weight(plot: Plot) -> int:
    """About how many bytes a plot of features takes in the page."""
    return sum(12 * len(panel["x"]) * len(panel["x"][0]) for panel in plot.spec["panels"])


def _plotly() -> str:
    """plotly.js, from the package that is installed."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise missing_extra("plotly", "report")
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return path.read_text(encoding="utf-8").replace("</script", "<\\/script")


def _hash(script: str) -> str:
    """What the page's security policy knows a script by: no other one runs."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
