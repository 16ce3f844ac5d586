"""docs/configuration.md is what the code says, and nothing in it is left unsaid."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from fedrelay import config
from fedrelay.config import catalogue, experiment, schema
from fedrelay.studies.configuration_page import page

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date():
    """`python -m fedrelay.studies.configuration_page docs/configuration.md` renews it."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_key_has_a_type_and_a_meaning():
    rows = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row for row in rows if len(row) != 4 or not row[1].strip() or not row[3].strip()] == []


def test_every_section_and_every_part_with_its_parameters_is_there():
    text = page()
    assert all(f"## [{section}]" in text for section in (*experiment.SECTIONS, *experiment.OPTIONAL))
    for kind in catalogue.KINDS:
        for name, target in catalogue.targets(kind).items():
            start = text.index(f"**`{name}`** {catalogue.about(target)}")
            part = text[start : text.find("\n**`", start + 1)]
            wanted = (
                schema.parameters(target, skip=(*catalogue.GIVEN, "clients")) if hasattr(target, "__name__") else ()
            )
            assert all(f"| `{key}` |" in part for key in wanted), (kind, name)


def test_every_link_leads_somewhere():
    text = page()
    places = {
        re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-") for line in re.findall(r"#+ .*", text)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= places


def test_the_defaults_of_the_page_are_those_of_a_resolved_configuration():
    tables = {"data": {"name": "digits", "clients": 30}, "model": {"name": "mlp"}, "algorithm": {"name": "fedavg"}}
    resolved = config.build(tables).tables
    for section, key in (("evaluate", "every"), ("evaluate", "on"), ("local", "lr"), ("local", "batch")):
        part = page().partition(f"## [{section}]")[2]
        found = re.search(rf"\| `{key}` \|[^|]*\| `([^`]*)`", part)
        assert tomllib.loads(f"value = {found[1]}")["value"] == resolved[section][key]
