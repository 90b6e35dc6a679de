"""Sort runs into groups whose methods may stand side by side, and say what a group has in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ldmnet.palette import METHOD_COLORS, OTHER_COLORS, TUNED
from ldmnet.records.tables import rank
from ldmnet.report.collect import Kind, Run


@dataclass(frozen=True, eq=False)
class Series:
    """The runs of one method in a group, over seeds.

    Attributes:
        label: its name for people.
        runs: one per seed.
        color: the name of its colour in the page.
        repeat: how many series of the same colour come before it.
    """

    label: str
    runs: list[Run]
    color: str = ""
    repeat: int = 0

    @property
    def traced(self) -> Run:
        """The run to show where one must do: the first with snapshots, else with updates, else the first."""
        return max(self.runs, key=lambda run: (run.snapshots is not None, bool(run.updates), bool(run.history)))


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in method and seed alone.

    Attributes:
        title: what they have in common.
        kind: what made them.
        series: one per method.
    """

    title: str
    kind: Kind
    series: list[Series]

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [run for series in self.series for run in series.runs]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What a reader wants to know first: the data, its size, when and how it was made."""
        records = [run.record for run in self.runs]
        sizes = [
            f"{span(filter(None, found))} {word}"
            for found, word in (
                ([record.n_train for record in records], "training samples"),
                ([record.n_test for record in records], "test samples"),
            )
            if any(found)
        ]
        classes = next((run.class_names for run in self.runs if run.class_names), [])
        shape: list[int] = next((record.more["shape"] for record in records if record.more.get("shape")), [])
        if classes:
            sizes.append(f"{len(classes)} classes")
        if shape:
            sizes.append(f"{' x '.join(map(str, shape))} numbers per sample")
        facts = {
            "Data": _listed(run.data_name for run in self.runs),
            "Note": _listed(record.data_note for record in records),
            "Sizes": ", ".join(sizes),
            "Date": _listed(sorted(run.date for run in self.runs)),
            "Command": _listed((record.command for record in records), " ; ") or "not in these records",
        }
        return [(name, words) for name, words in facts.items() if words]


def span(numbers: Iterable[int]) -> str:
    """Write one number, or the first and the last of several."""
    found = sorted(set(numbers))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def _listed(words: Iterable[str], between: str = ", ") -> str:
    found = list(dict.fromkeys(filter(None, words)))
    return between.join(found) if len(found) <= 3 else between.join([found[0], "...", found[-1]])


def groups_of(runs: Iterable[Run]) -> list[Group]:
    """Sort runs into groups: by table and training size, by comparison, or by the data that they were trained on."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(group_key(run), []).append(run)
    groups = [_group(members) for members in found.values()]
    named = [_told_apart(groups, group, _difference(groups, group)) for group in groups]
    return [_told_apart(named, group, f"{number} of {len(named)}") for number, group in enumerate(named, 1)]


def _told_apart(groups: list[Group], group: Group, how: str) -> Group:
    alike = sum(other.title == group.title for other in groups) > 1
    return replace(group, title=f"{group.title} ({how})") if alike and how else group


def _difference(groups: list[Group], group: Group) -> str:
    """What tells a group from others of its title: the settings of a comparison, the source of other runs."""
    if group.kind != "comparison":
        return group.runs[0].source
    others = [other.runs[0].shared_settings for other in groups if other.title == group.title]
    mine = group.runs[0].shared_settings
    return ", ".join(
        f"{name} {value}" for name, value in mine.items() if any(other.get(name) != value for other in others)
    )


def group_key(run: Run) -> tuple[Any, ...]:
    """What runs have in common that may stand side by side."""
    if run.kind == "paper":
        return run.kind, run.source, run.record.table, run.record.per_class
    if run.kind == "training":
        return run.kind, run.record.data
    return run.kind, run.source, run.record.data, *run.shared_settings.items()


def _group(runs: list[Run]) -> Group:
    first = runs[0]
    if first.kind == "training":
        title = f"Run {first.source}" if len(runs) == 1 else "Runs on the same data"
        names = [f"{run.source}: {run.title}" if len(runs) > 1 else run.title for run in runs]
        series = [Series(name, [run]) for name, run in zip(names, runs, strict=True)]
    elif first.kind == "comparison":
        title, series = f"Comparison {first.source}", list(_by_method(runs))
    else:
        size = first.record.per_class
        title = first.record.table + ("" if size is None else f", {size} images per class")
        series = list(_by_method(runs))
    return Group(title, first.kind, list(_colored(series)))


def _by_method(runs: list[Run]) -> Iterator[Series]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.record.method, []).append(run)
    for method in sorted(found, key=lambda name: rank(name)[0]):
        yield Series(found[method][0].title, list({run.record.seed: run for run in found[method]}.values()))


def _colored(series: list[Series]) -> Iterator[Series]:
    """Give a method its own colour; other names take one each, by their place among themselves."""
    others: list[str] = []
    seen: dict[str, int] = {}
    for one in series:
        method = one.runs[0].record.method.removesuffix(TUNED)
        if method not in METHOD_COLORS:
            others = list(dict.fromkeys([*others, method]))
            method = f"other-{others.index(method) % len(OTHER_COLORS)}"
        seen[method] = seen.get(method, -1) + 1
        yield replace(one, color=method, repeat=seen[method])
