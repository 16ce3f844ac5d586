"""Numbers that a paper prints as formulas: `C*(N_S + K)` with the values of its symbols."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

from fedrelay.errors import BadInput

OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST = 200


def value_of(formula: str, symbols: Mapping[str, float]) -> float:
    """What a formula of numbers, symbols, + - * / and brackets comes to."""
    try:
        parsed = ast.parse(formula[: LONGEST + 1], mode="eval").body
    except (SyntaxError, ValueError):
        parsed = None
    if parsed is None or len(formula) > LONGEST:
        raise BadInput(f"{formula!r:.100} is no formula of numbers, symbols, + - * / and brackets")
    try:
        return float(reckoned(parsed, symbols))
    except OverflowError:
        raise BadInput(f"{formula!r} is more than a number can hold") from None


def reckoned(node: ast.expr, symbols: Mapping[str, float]) -> Fraction:
    """What one part of a formula comes to; exactly, so that 6 * 0.2 * 500 is 600."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = reckoned(node.left, symbols), reckoned(node.right, symbols)
        if isinstance(node.op, ast.Div) and right == 0:
            raise BadInput(f"{ast.unparse(node)!r} divides by zero")
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return exact(node.value)
    if isinstance(node, ast.Name) and node.id in symbols:
        return exact(symbols[node.id])
    if isinstance(node, ast.Name):
        raise BadInput(f"[symbols] does not say what {node.id} is; it has {', '.join(symbols) or 'none'}")
    raise BadInput(f"{ast.unparse(node)!r:.100} is no formula of numbers, symbols, + - * / and brackets")


def exact(value: float) -> Fraction:
    """A number as it is written: 0.2 is a fifth."""
    if not math.isfinite(value):
        raise BadInput(f"{value} is no number to reckon with")
    return Fraction(str(value))
