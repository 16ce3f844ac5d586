"""Runs side by side: one self-contained HTML page, tables for the terminal, frames of pandas and CSV files."""

from __future__ import annotations

from fedrelay.report.against import Against
from fedrelay.report.columns import COLUMNS
from fedrelay.report.drawn import write_figures
from fedrelay.report.frames import Results, results
from fedrelay.report.latex import latex
from fedrelay.report.one_line import one_line
from fedrelay.report.page import gathered, html, write, written
from fedrelay.report.rows import CSV_FILES, clients, frame, summaries, write_csv
from fedrelay.report.terminal import client_table, table
from fedrelay.runs.folder import Run, load

__all__ = [
    "COLUMNS",
    "CSV_FILES",
    "Against",
    "Results",
    "Run",
    "client_table",
    "clients",
    "frame",
    "gathered",
    "html",
    "latex",
    "load",
    "one_line",
    "results",
    "summaries",
    "table",
    "write",
    "write_csv",
    "write_figures",
    "written",
]
