"""Figure 1: the features of the test images, learned by each method from the same training images."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ldmnet.paper.presets import PRINTED_ROWS, classification_runs
from ldmnet.records.figures import TITLES, feature_figure
from ldmnet.records.runs import WEIGHTS, build_network, execute, training_data
from ldmnet.training.features import sweep
from ldmnet.training.progress import EpochBar


def draw_features(
    table: str,
    per_class: int,
    seed: int,
    output: Path,
    *,
    runs_dir: Path,
    data_dir: str | Path | None,
    console: Console,
) -> Path:
    """Train every method whose weights are not in `runs_dir`, and draw the features of the test images."""
    runs = classification_runs(table, [per_class], PRINTED_ROWS, [seed])
    data = training_data(runs[0].settings, data_dir)
    panels = {"test images": data.test_pixels}
    for run in runs:
        with EpochBar(run.row, run.settings.train.epochs, console) as bar:
            record = execute(run, runs_dir=runs_dir, data_dir=data_dir, on_epoch=bar, keep_weights=True)
        if "diverged" in record:
            console.print(f"{TITLES[run.row]} is left out: {record['diverged']}", soft_wrap=True, highlight=False)
            continue
        model = build_network(run.settings, runs_dir / run.settings.hash() / WEIGHTS)
        panels[f"{TITLES[run.row]}: {record['accuracy']:.1f} %"] = sweep(model, data.test[0], layer="features")
    title = f"{table}: features of {len(data.test[1]):,} test images after training on {per_class} a class"
    return feature_figure(panels, data.test[1], output, title=title)
