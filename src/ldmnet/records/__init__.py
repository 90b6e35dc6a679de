"""Experiments as data: one run makes one record; tables and figures are functions of records alone."""

from ldmnet.records.runs import Run, RunSettings, execute, read_records
from ldmnet.records.sweep import sweep_runs, unfinished
from ldmnet.records.tables import TableRow, format_table, table_rows

__all__ = [
    "Run",
    "RunSettings",
    "TableRow",
    "execute",
    "format_table",
    "read_records",
    "sweep_runs",
    "table_rows",
    "unfinished",
]
