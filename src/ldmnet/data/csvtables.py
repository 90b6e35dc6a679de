"""CSV tables: a column of labels and columns of numbers, for training and for what is to be told afterwards."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence, Set
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ldmnet.data.readers import Labels, read_bytes
from ldmnet.data.samples import Samples, row_names
from ldmnet.errors import DataError, InputError

LABEL_COLUMNS = ("label", "y", "class", "target")  # in the order in which they are looked for
LARGEST = float(np.finfo(np.float32).max)
NUMBERED = 4  # columns from which a first row of 0, 1, 2 and so on is no sample


def read_table(path: str | Path, label: str | None = None) -> Samples:
    """A table of numbers and labels with or without a header; commas, semicolons or tabs between the cells.

    Args:
        path: the file.
        label: the label column's name; unless given, the one called label, y, class or target, else the last.
    """
    lines, separator, first = table_lines(path)
    names = first if _is_header(lines, separator, first, label, path) else None
    if names is None:
        _check_sample(first, path)
    else:
        _check_header(names, path)
    return _parse(lines, separator, names, len(first), _label_column(names, label, len(first), path), path)


def read_table_like(path: str | Path, label: str | None, width: int, columns: Sequence[str] | None) -> Samples:
    """A table, labelled or not, with the columns of another in that one's order.

    Args:
        path: the file.
        label: the other one's label column, where it had a name.
        width: how many columns of numbers the other has.
        columns: their names. With them, columns are found by their names if the table has a header, and others are
            ignored; else by place.
    """
    lines, separator, first = table_lines(path)
    if columns is not None and not (set(first).isdisjoint(columns) and all(map(_is_number, first[:width]))):
        there, wanted = set(first), set(columns)
        lost = [name for name in columns if name not in there]
        if lost:
            _check_header(first, path)
            raise DataError(
                f"{path} lacks columns of the training: {', '.join(lost)}. It has the columns {', '.join(first)}."
            )
        _check_header([name for name in first if name in wanted], path)
        others = [i for i, name in enumerate(first) if name not in wanted]
        labels = [i for i in others if (first[i].lower() in LABEL_COLUMNS if label is None else first[i] == label)]
        return _parse(lines, separator, first, len(first), labels[0] if labels else None, path, columns)
    if len(first) == width and label not in first:
        names = None if all(map(_is_number, first)) else first
        if names is None:
            _check_sample(first, path)
        return _parse(lines, separator, names, width, None, path)
    if len(first) != width + 1:
        raise DataError(
            f"{path} has {len(first)} columns where there should be {width}, or {width + 1} with the labels."
        )
    if columns is not None:
        raise DataError(
            f"{path} has {len(first)} columns and no header, so it is not known which one holds the labels. "
            "Give it the header of the training's table, or leave the labels out."
        )
    return read_table(path, label)


def table_lines(path: str | Path) -> tuple[list[str], str, list[str]]:
    """The lines that are not blank, what separates cells, and the first line's cells."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}.") from error
    lines = list(io.StringIO(text, newline=""))  # \n, \r and \r\n end a line
    first = next((line for line in lines if line.strip()), "")
    separator = max(",;\t", key=first.count)
    try:
        records = _records(lines, separator) if '"' in text else lines
        records = [record.rstrip("\r\n") for record in records if record.strip()]
        if not records:
            raise DataError(f"{path} is empty.")
        return records, separator, cells_of(records[0], separator)
    except csv.Error as error:
        raise DataError(f"{path} is not a table: {error}.") from error


def _records(lines: Sequence[str], separator: str) -> list[str]:
    """Lines put together where a quoted cell has a line break in it."""
    records, reader, before = [], csv.reader(lines, delimiter=separator), 0
    for _ in reader:
        records.append("".join(lines[before : reader.line_num]))
        before = reader.line_num
    return records


def _check_header(names: Sequence[str], path: str | Path) -> None:
    """Refuse a name for two columns, which may change places, and a column without one.

    That holds the numbers of the rows, and in a sorted table they tell the class.
    """
    if "" in names:
        raise DataError(
            f"{path}: column {names.index('') + 1} has no name, as that of pandas' row numbers. Save the table without "
            "it (index=False), or give it a name."
        )
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns called {twice}. Give each a name of its own.")


def _check_sample(first: Sequence[str], path: str | Path) -> None:
    """Refuse numbers of columns, which pandas writes in place of names, as a sample."""
    for start in (0, 1):
        if len(first) >= NUMBERED and list(first) == [str(start + i) for i in range(len(first))]:
            raise DataError(
                f"{path}: the first row is {start}, {start + 1}, {start + 2} and so on, as pandas numbers columns that "
                "have no names. Give them names, or leave that row out (header=False); if it is a sample, give the "
                "table a header."
            )


def cells_of(record: str, separator: str) -> list[str]:
    """The cells of one line, without the blanks around them."""
    return [cell.strip() for cell in next(csv.reader(io.StringIO(record, newline=""), delimiter=separator))]


def _is_header(lines: Sequence[str], separator: str, first: Sequence[str], label: str | None, path: str | Path) -> bool:
    """A header has a name where a row has a number; the last cell alone may be the name of a class."""
    if not all(map(_is_number, first[:-1])) or first[-1].lower() == (label or "label").lower():
        return True
    if _is_number(first[-1]):
        return False
    last = Counter(cells_of(line, separator)[-1] for line in lines[1:])
    if first[-1] in last:
        return False
    if first[-1].lower() in LABEL_COLUMNS:
        return True
    if last and min(last.values()) > 1:
        raise DataError(
            f"{path}: {first[-1]!r} ends the first row and no other. If that row is a header, name the column of "
            "labels; if it is a sample, give the table a header.",
            setting="label",
        )
    return False


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _label_column(names: Sequence[str] | None, label: str | None, width: int, path: str | Path) -> int:
    if label is not None:
        if names is None or label not in names:
            has = "has no header" if names is None else f"has the columns {', '.join(names)}"
            raise InputError(f"label is {label!r} but {path} {has}.")
        return names.index(label)
    lower = [name.lower() for name in names or ()]
    return next((lower.index(name) for name in LABEL_COLUMNS if name in lower), width - 1)


def _parse(
    lines: Sequence[str],
    separator: str,
    names: Sequence[str] | None,
    width: int,
    column: int | None,
    path: str | Path,
    order: Sequence[str] | None = None,
) -> Samples:
    """The table below its header, without the label column; those of its columns that are in `order`, so ordered."""
    body = lines if names is None else lines[1:]
    if column is not None and (width < 2 or not body):
        raise DataError(f"{path} needs a column of labels, one or more of numbers, and at least one row of them.")
    if not body:
        raise DataError(f"{path} has no rows.")
    kept = [i for i in range(width) if i != column]
    if names is not None and order is not None:
        place = {name: i for i, name in enumerate(names)}
        kept = [place[name] for name in order]
    read = {column, *kept}
    unread = [i for i in range(width) if i not in read]
    values, classes = _numbers(body, separator, column, unread, names or range(1, width + 1), path)
    column = None if order is not None and classes == [""] else column  # to be predicted, all of them
    ignored = [names[i] or f"column {i + 1}, which has no name" for i in unread] if names is not None else []
    codes, class_names = (None, []) if column is None else sorted_classes(classes, path)
    return Samples(
        torch.from_numpy(np.ascontiguousarray(values[:, kept])),
        None if codes is None else torch.from_numpy(codes[values[:, column].astype(np.int64)]),
        class_names,
        row_names(len(values)),
        columns=None if names is None else [names[i] for i in kept],
        label=None if names is None or column is None else names[column],
        notes=(f"{path}: ignored columns that the training had not: {', '.join(ignored)}",) if ignored else (),
    )


def _numbers(
    body: Sequence[str],
    separator: str,
    column: int | None,
    unread: Sequence[int],
    names: Sequence[object],
    path: str | Path,
) -> tuple[NDArray[np.float64], list[str]]:
    """The rows, labels replaced by a code in order of appearance, and the labels in that order."""
    codes: dict[str, int] = {}
    converters: dict[int | str, Callable[[str], float]] = {i: lambda _: 0.0 for i in unread}

    def code(cell: str) -> int:
        return codes.setdefault(cell.strip(), len(codes))

    try:
        table = np.loadtxt(
            body,
            np.float64,
            delimiter=separator,
            comments=None,
            quotechar='"',
            ndmin=2,
            converters=converters if column is None else {**converters, column: code},
            encoding="utf-8",
        )
    except ValueError as error:
        raise DataError(f"{path}, {_first_fault(body, separator, {column, *unread}, names) or error}") from error
    if table.shape[1] != len(names) or not (np.abs(table) <= LARGEST).all():
        raise DataError(f"{path}, {_first_fault(body, separator, {column, *unread}, names)}")
    return table, list(codes)


def _first_fault(body: Sequence[str], separator: str, words: Set[int | None], names: Sequence[object]) -> str:
    """Where and why the first bad row is bad; rows are counted from 1, without the header and blank lines."""
    lines = (line for record in body for line in io.StringIO(f"{record}\n", newline=""))
    for number, row in enumerate(csv.reader(lines, delimiter=separator), 1):
        if len(row) != len(names):
            return f"row {number}: {len(row)} cells where there should be {len(names)}."
        for i, cell in enumerate(row):
            if i not in words and not (_is_number(cell) and abs(float(cell)) <= LARGEST):
                return (
                    f"row {number}: {cell!r} in column {names[i]} is not a finite number. Fill empty cells, turn words "
                    "into columns of 0 and 1, or leave the column out."
                )
    return ""


def sorted_classes(classes: Sequence[str], path: str | Path) -> tuple[Labels, list[str]]:
    """Each class's position among the sorted ones (by value if all are numbers), and the sorted names, as they are."""
    if "" in classes:
        raise DataError(f"{path} has rows without a label.")
    order = sorted(classes)
    if all(map(_is_number, classes)):
        fraction = next((name for name in classes if not _is_whole(name)), None)
        if fraction is not None:
            raise DataError(f"{path}: the labels must be whole numbers or names of classes, got {fraction}.")
        order = sorted(order, key=Decimal)  # exact: a float would make one of two numbers above 2^53
        alike = next(((one, other) for one, other in pairwise(order) if Decimal(one) == Decimal(other)), None)
        if alike is not None:
            raise DataError(f"{path}: the labels {alike[0]} and {alike[1]} are one number. Write it in one way.")
    position = {name: i for i, name in enumerate(order)}
    return np.array([position[name] for name in classes], dtype=np.int64), order


def _is_whole(name: str) -> bool:
    return name.lstrip("+-").isdigit() or float(name) % 1 == 0
