"""Write the tables of README and docs anew from the records in results/.

A table stands between two marks: <!-- table: mnist --> (or leads: mnist, study: mnist, parts: all,
defaults: grid, rivals: tables, summary: all, printed: all) and <!-- end -->.

    python scripts/refresh_tables.py            rewrite
    python scripts/refresh_tables.py --check    exit 1 if anything would change
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

from defaults import defaults_table
from rivals import rivals_table

from ldmnet.paper import face_study, faces
from ldmnet.records import Record, format_table, table_rows
from ldmnet.records.leads import format_leads, format_parts, parts_of
from ldmnet.records.tables import format_study, markdown, records_in

ROOT = Path(__file__).parents[1]
KINDS = "table|leads|study|parts|defaults|rivals|summary|printed"
MARKED = re.compile(rf"(<!-- ({KINDS}): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
METHODS = ("none", "weight decay", "dropout", "control", "ldmnet")
SUMMARY = (  # the README's table: data, its table, images per class, settings
    ("MNIST", "mnist", "50", "printed"),
    ("MNIST", "mnist", "100", "printed"),
    ("MNIST", "mnist", "400", "printed"),
    ("MNIST", "mnist", "6000", "printed"),
    ("CIFAR-10", "cifar10", "50", "printed"),
    ("CIFAR-10", "cifar10", "50", "tuned"),
    ("SVHN", "svhn", "50", "printed"),
    ("SVHN", "svhn", "50", "tuned"),
    ("Yale B faces", "yaleb", "", "tuned"),
    ("CUFS sketches", "cufs", "", "tuned"),
)


def summary(records: list[Record]) -> str:
    """The chosen lines of the tables, one below the other."""
    lines = [["data", "per class", "settings", *METHODS, "seeds"]]
    for data, name, size, settings in SUMMARY:
        text = format_table(table_rows(records, name), "md")
        heading, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines())
        if size:
            (row,) = (row for row in rows if row[:2] == [size, settings])
            cells = dict(zip(heading, row, strict=True))
        else:  # a table by method: LDMNet's settings are those that validation chose
            by_method = {row[0]: row[1:] for row in rows}
            chosen = {method: by_method[f"ldmnet {settings}" if method == "ldmnet" else method] for method in METHODS}
            cells = {method: row[0] for method, row in chosen.items()} | {"seeds": chosen["ldmnet"][1]}
        lines.append([data, size, settings, *(cells[method] for method in METHODS), cells["seeds"]])
    return markdown(lines)


def printed(records: list[Record]) -> str:
    """Every printed number beside ours: passed or missed by more than twice the standard error, or met."""
    lines = [["data", "per class", "method", "settings", "printed", "ours", "difference", "seeds", "test images", ""]]
    for data, name in (("MNIST", "mnist"), ("SVHN", "svhn"), ("CIFAR-10", "cifar10")):
        for row in table_rows(records, name):
            if row.paper is None or row.mean is None:
                continue
            share = row.mean / 100
            error = (
                100 * math.sqrt(share * (1 - share) / row.n_test) if row.std is None else row.std / math.sqrt(row.seeds)
            )
            apart = row.mean - row.paper
            verdict = "met" if abs(apart) <= 2 * error else "passed" if apart > 0 else "missed"
            method, tuned = row.method.removesuffix("_tuned"), row.method.endswith("_tuned")
            numbers = [f"{row.paper:.2f}", f"{row.mean:.2f}", f"{apart:+.2f} ± {error:.2f}", str(row.seeds)]
            place = [data, str(row.per_class), method.replace("_", " "), "tuned" if tuned else "printed"]
            lines.append([*place, *numbers, f"{row.n_test:,}", verdict])
    return markdown(lines)


def refreshed(text: str, records: list[Record]) -> str:
    """The text with every marked table computed from the records."""

    def table(match: re.Match[str]) -> str:
        opening, kind, name, closing = match.groups()
        if kind == "study":
            first = face_study.VARIATIONS[0].name if name in faces.TABLES else "as printed"
            body = format_study((r for r in records if r.table == f"study-{name}"), first)
        elif kind == "leads":
            body = format_leads(records, name)
        elif kind == "defaults":
            body = defaults_table(name)
        elif kind == "rivals":
            body = rivals_table(name)
        elif kind == "summary":
            body = summary(records)
        elif kind == "printed":
            body = printed(records)
        elif kind == "parts":
            body = format_parts(parts_of(records))
        else:
            body = format_table(table_rows(records, name), "md")
        return f"{opening}{body}\n{closing}"

    return MARKED.sub(table, text)


def main() -> int:
    """Rewrite, or with --check only compare; the number of files that differ."""
    stale, records = [], records_in(ROOT / "results")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if (new := refreshed(text, records)) != text:
            stale.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(new, encoding="utf-8")
    for path in stale:
        print(f"{path}: tables {'differ from the records' if '--check' in sys.argv else 'written'}")
    return len(stale) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
