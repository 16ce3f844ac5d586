"""Runs side by side: one self-contained HTML page, tables for the terminal, frames of pandas and CSV files."""

from __future__ import annotations

from fedrelay.report.against import Against
from fedrelay.report.page import html, write
from fedrelay.report.rows import CSV_FILES, clients, frame, summaries, write_csv
from fedrelay.report.terminal import client_table, table
from fedrelay.runs.folder import Run, load

__all__ = [
    "CSV_FILES",
    "Against",
    "Run",
    "client_table",
    "clients",
    "frame",
    "html",
    "load",
    "summaries",
    "table",
    "write",
    "write_csv",
]
