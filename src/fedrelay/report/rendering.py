"""How every page is made from its template: text is escaped whatever it contains, and nothing is fetched."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedrelay.report.figures import Figure

OURS = "fedrelay.report"
PLOTLY = "plotly/plotly-cartesian.min.js.gz"
"""The bundle of plotly.js that has lines, bars, boxes, heat maps and images, as its authors publish it, packed."""


def rendered(template: str, drawn: Sequence[Figure], *, package: str = OURS, **values: Any) -> str:
    """The page of a template, of ours or of another package that extends them; `drawn` are all pictures in it."""
    specs = {figure.key: figure.spec for figure in drawn}
    given: Mapping[str, Any] = {"parts": [], **values}
    made = environment(package).get_template(template)
    return made.render(specs=specs, plotly=packed_plotly() if specs else "", **given)


def rendered_part(template: str, **values: Any) -> Markup:
    """A part of a page, ready to be put into it."""
    return Markup(environment(OURS).get_template(template).render(**values))


def environment(package: str) -> Environment:
    return Environment(
        loader=ChoiceLoader([PackageLoader(one, "template") for one in dict.fromkeys((package, OURS))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def packed_plotly() -> str:
    """Plotly as a page holds it: packed, in letters; a third of its size."""
    return base64.b64encode(files(OURS).joinpath(PLOTLY).read_bytes()).decode()
