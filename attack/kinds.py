"""The table of all kinds of attack: one row each, here and in the page."""

from __future__ import annotations

import damage
import flips
import kills
import leaks
import markup
import pickles
import points
import settings
from share import Kind

KINDS = (
    Kind("kills-inline", "`kill -9` at a random moment, engine `inline`, 18 methods", kills.inline, 700, 18, 10),
    Kind("kills-stacked", "the same, engine `stacked`, 7 methods", kills.stacked, 200, 4, 6),
    Kind("kills-studies", "the same, `compare` and `tune`", kills.studies, 100, 1, 8),
    Kind(
        "kills-pool",
        "the same, engine `pool`: the command, it with its workers, or one worker (fewer, as workers start slowly)",
        *(kills.pool, 45, 1, 16),
    ),
    Kind("stops", "Ctrl-C or SIGTERM at a random moment", kills.stops, 140, 4, 8),
    Kind(
        "points",
        "a kill or a full disk at every file operation of `run`, `compare`, `tune`, `groups`, with memories that spill",
        *(points.enumerated, 100_000, 5, 24),  # tests/test_crash_points.py tries many more at every change
    ),
    Kind("settings", "mutated configurations, one in 50 run for a round", settings.mutated, 100_000, 800, 24),
    Kind("files", "damaged data files and archives, 29 readers", damage.files, 20_000, 464, 14),
    Kind("pickles", "pickles, arrays and models that carry code, in 5 places", pickles.planted, 110, 20, 2),
    Kind(
        "flips",
        "flipped bits in every file of run folders, then report, predict and resume",
        *(flips.flipped, 2_000, 10, 24),
    ),
    Kind("markup", "names with markup or escape codes, in pages and the terminal", markup.injected, 88, 4, 2),
    Kind("leaks", "short runs in one process", leaks.runs, 1_000, 30, 6, split=False),
)
