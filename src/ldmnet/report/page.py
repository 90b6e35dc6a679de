"""The page: one HTML file with its styles, its script, its data and plotly.js inside, so that it opens anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ldmnet.errors import DataError, InputError, missing_extra
from ldmnet.files import write_atomically
from ldmnet.palette import CLASS_COLORS, METHOD_COLORS, OTHER_COLORS
from ldmnet.report.classes import classes
from ldmnet.report.collect import Run, collect
from ldmnet.report.curves import curves
from ldmnet.report.features import features
from ldmnet.report.groups import Group, groups_of
from ldmnet.report.plots import TEMPLATE, Part, Plot, escaped
from ldmnet.report.solver import solver, verdict
from ldmnet.report.tables import results, settings, terms

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
    """Return the page's text."""
    try:
        import jinja2
        from jinja2.utils import htmlsafe_json_dumps
        from markupsafe import Markup
    except ImportError as error:
        raise missing_extra("Jinja2", "report") from error
    files = resources.files("ldmnet.report")
    plotly, script = _plotly(), (files / "page.js").read_text(encoding="utf-8")
    groups = groups_of(runs)
    parts, data = _sections(groups)
    health, alarm = verdict(groups)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((files / "page.html").read_text(encoding="utf-8"))
    titles = [group.title for group in groups]
    return template.render(
        title="; ".join(titles[:3]) + (f" and {len(titles) - 3} more" if len(titles) > 3 else ""),
        alone=len(groups) == 1,
        groups=groups,
        results=results(runs),
        terms=terms(runs),
        parts_of=parts,
        health=health,
        alarm=alarm,
        settings=[(group.title, settings(group)) for group in groups],
        data=htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False),
        style=Markup(_colors() + (files / "style.css").read_text(encoding="utf-8")),
        plotly=Markup(plotly),
        script=Markup(script),
        script_hashes=[_hash(plotly), _hash(script)],
    )


def _sections(groups: Sequence[Group]) -> tuple[dict[str, list[Part]], dict[str, Any]]:
    """The sections with plots, by name and group, and the page's data."""
    shown: list[Part] = []
    for number, group in enumerate(groups):
        if sum(_weight(plot) for part in shown for plot in part.plots) > FEATURE_BYTES:
            note = "Left out, since the page would become too large: name fewer runs to see these."
            shown.append(Part(group.title, notes=[note]))
        else:
            shown.append(features(number, group))
    parts = {
        "classes": [classes(number, group) for number, group in enumerate(groups)],
        "curves": [curves(number, group) for number, group in enumerate(groups)],
        "features": shown,
        "solver": [solver(number, group) for number, group in enumerate(groups)],
    }
    plots = [plot for found in parts.values() for part in found for plot in part.plots]
    return parts, {
        "figures": {panel.name: escaped(panel.figure) for plot in plots for panel in plot.panels},
        "template": TEMPLATE,
        "samples": {plot.name: plot.samples for plot in plots if plot.samples},
        "sprites": {name: sheet for plot in plots for name, sheet in plot.sprites.items()},
    }


def _weight(plot: Plot) -> int:
    """About how many bytes a plot of features takes in the page."""
    frames = [frame for panel in plot.panels for frame in panel.figure.get("frames", [])]
    return sum(25 * len(frame["x"]) for frame in frames) + sum(map(len, plot.sprites.values()))


def _colors() -> str:
    """The palette as variables of the page's style, for both schemes; paper is always light."""
    named = [
        *METHOD_COLORS.items(),
        *((f"other-{i}", color) for i, color in enumerate(OTHER_COLORS)),
        *((f"class-{i}", color) for i, color in enumerate(CLASS_COLORS)),
    ]
    light, dark = ("".join(f"--{name}:{color[i]};" for name, color in named) for i in (0, 1))
    return f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root:not(.paper){{{dark}}}}}\n"


def _plotly() -> str:
    """plotly.js, from the package that is installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise missing_extra("plotly", "report") from error
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _hash(script: str) -> str:
    """What the page's security policy knows a script by: no other one runs."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
