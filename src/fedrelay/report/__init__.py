"""Runs side by side: one self-contained HTML page, and a table for the terminal."""

from __future__ import annotations

from fedrelay.report.page import html, write
from fedrelay.report.terminal import table
from fedrelay.runs.folder import Run, load

__all__ = ["Run", "html", "load", "table", "write"]
