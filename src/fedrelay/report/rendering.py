"""How every page is made from its template: text is escaped whatever it contains, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from fedrelay.report.figures import Figure

OURS = "fedrelay.report"


def rendered(template: str, drawn: Sequence[Figure], *, package: str = OURS, **values: Any) -> str:
    """The page of a template, of ours or of another package that extends them; `drawn` are all pictures in it."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one, "template") for one in dict.fromkeys((package, OURS))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    specs = {figure.key: figure.spec for figure in drawn}
    return environment.get_template(template).render(specs=specs, plotly=get_plotlyjs() if specs else "", **values)
