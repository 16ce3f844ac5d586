"""From a TOML file to a run that can start."""

from fedrelay.config.experiment import (
    NUMBERS,
    Experiment,
    Tables,
    build,
    keys_of,
    override,
    read,
    section_of,
    with_values,
)

__all__ = ["NUMBERS", "Experiment", "Tables", "build", "keys_of", "override", "read", "section_of", "with_values"]
