"""Runs side by side: one self-contained HTML page, and a table for the terminal."""

from __future__ import annotations

from fedrelay.report.folder import Run, load
from fedrelay.report.page import html, write
from fedrelay.report.terminal import table

__all__ = ["Run", "html", "load", "table", "write"]
