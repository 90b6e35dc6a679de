"""Run folders and records to one HTML page: collect what is there, turn it into plots and tables, assemble the page."""

from ldmnet.report.page import write_report

__all__ = ["write_report"]
