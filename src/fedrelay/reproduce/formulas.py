"""Numbers that a paper prints as formulas: `C*(N_S + K)` with the values of its symbols."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from fedrelay.errors import BadInput

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
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
    return reckoned(parsed, symbols)


def reckoned(node: ast.expr, symbols: Mapping[str, float]) -> float:
    """What one part of a formula comes to."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = reckoned(node.left, symbols), reckoned(node.right, symbols)
        if isinstance(node.op, ast.Div) and right == 0:
            raise BadInput(f"{ast.unparse(node)!r} divides by zero")
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name) and node.id in symbols:
        return symbols[node.id]
    if isinstance(node, ast.Name):
        raise BadInput(f"[symbols] does not say what {node.id} is; it has {', '.join(symbols) or 'none'}")
    raise BadInput(f"{ast.unparse(node)!r:.100} is no formula of numbers, symbols, + - * / and brackets")
