"""Records of runs, and what is made of them: tables, differences, figures. Nothing here trains."""

from ldmnet.records.record import Record, append, read_records
from ldmnet.records.tables import TableRow, format_table, table_rows

__all__ = ["Record", "TableRow", "append", "format_table", "read_records", "table_rows"]
