"""Folds the constants of an expression as DataFusion's optimizer does, whose result `deltalake` records in commits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from sqlglot import exp

Node = Any
"""A node of sqlglot's tree."""

COMPARISONS: Final[dict[type, str]] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_OPPOSITE_KINDS: Final[dict[type, Any]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.GTE: exp.LT, exp.GT: exp.LTE, exp.LTE: exp.GT,
    exp.NullSafeEQ: exp.NullSafeNEQ, exp.NullSafeNEQ: exp.NullSafeEQ,
}  # fmt: skip
ARITHMETIC: Final[dict[type, tuple[str, int]]] = {
    exp.Add: ("+", 4), exp.Sub: ("-", 4), exp.Mul: ("*", 5), exp.Div: ("/", 5), exp.IntDiv: ("/", 5),
    exp.Mod: ("%", 5), exp.DPipe: ("||", 4), exp.BitwiseXor: ("BIT_XOR", 4),
}  # fmt: skip
MAX_TESTS: Final = 3
"""Up to so many values of a list `deltalake` writes one by one."""


def fold_constants(node: Node) -> Node:
    """The expression with its constants folded, from the inside out."""
    for child in list(node.iter_expressions()):
        made = fold_constants(child)
        if made is not child:
            child.replace(made)
    match node:
        case exp.Paren():
            return node.this
        case exp.Not():
            return _opposite(node.this)
        case exp.And() | exp.Or():
            return _connect(type(node), [node.this, node.expression])
        case exp.In() if 0 < len(node.expressions) <= MAX_TESTS:
            return _one_by_one(node)
        case exp.Between() if not node.args.get("symmetric"):
            low, high = (_fold_comparison(kind(this=node.this.copy(), expression=node.args[end]))
                         for kind, end in ((exp.GTE, "low"), (exp.LTE, "high")))  # fmt: skip
            return _connect(exp.And, [low, high])
        case exp.Coalesce():
            return _coalesce_as_case(node)
        case exp.Case() if _is_test(node):
            condition = exp.Paren(this=node.args["ifs"][0].this)
            return exp.NullSafeEQ(this=condition, expression=exp.Boolean(this=True))
    if type(node) in ARITHMETIC and (value := _computed(node)) is not None:
        return value
    return _fold_comparison(node) if type(node) in COMPARISONS else node


def _connect(kind: type, given: Sequence[Node]) -> Node:
    """AND or OR of conditions, without those that decide nothing or were there before."""
    deciding = kind is exp.Or
    parts: list[Node] = []
    for part in given:
        if isinstance(part, exp.Boolean):
            if part.this == deciding:
                return part
        elif part not in parts:
            parts.append(part)
    if not parts:
        return exp.Boolean(this=not deciding)
    joined = parts[0]
    for part in parts[1:]:
        joined = kind(this=joined, expression=part)
    return joined


def _one_by_one(node: Node) -> Node:
    """A short list as comparisons with each of its values."""
    negate = bool(node.args.get("negate"))
    kind = exp.NEQ if negate else exp.EQ
    tests = [_fold_comparison(kind(this=node.this.copy(), expression=item)) for item in node.expressions]
    return _connect(exp.And if negate else exp.Or, tests)


def _fold_comparison(node: Node) -> Node:
    return _compare_numbers(node) if is_number(node.this) and is_number(node.expression) else node


def _opposite(node: Node) -> Node:
    """What is true where a condition is false."""
    match node:
        case exp.Boolean():
            return exp.Boolean(this=not node.this)
        case exp.Not():
            return node.this
        case exp.And() | exp.Or():
            kind = exp.Or if isinstance(node, exp.And) else exp.And
            return _connect(kind, [_opposite(node.this), _opposite(node.expression)])
    other = _OPPOSITE_KINDS.get(type(node))
    return exp.Not(this=node) if other is None else other(this=node.this, expression=node.expression)


def _coalesce_as_case(node: Node) -> Node:
    given: list[Node] = [node.this, *node.expressions]
    values, last = given[:-1], given[-1]
    ifs = [
        exp.If(this=exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())), true=value.copy())
        for value in values
    ]
    return exp.Case(ifs=ifs, default=last) if ifs else node


def _is_test(node: Node) -> bool:
    """Whether a CASE says true where one condition is true, and else false."""
    ifs, default = node.args.get("ifs") or [], node.args.get("default")
    ends = [ifs[0].args.get("true") if len(ifs) == 1 else None, default]
    return node.this is None and all(isinstance(end, exp.Boolean) for end in ends) and ends[0].this and not ends[1].this


def is_number(node: Node) -> bool:
    inner = node.this if isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal) and not inner.is_string


def number_of(node: Node) -> Decimal:
    return -number_of(node.this) if isinstance(node, exp.Neg) else Decimal(node.name)


def _computed(node: Node) -> Node | None:
    """The result of arithmetic on whole numbers."""
    if not (is_number(node.this) and is_number(node.expression)):
        return None
    left, right = number_of(node.this), number_of(node.expression)
    if max(abs(left), abs(right)) >= 10**18:  # beyond a long, and soon beyond what a Decimal divides
        return None
    if left % 1 or right % 1 or not isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return None
    result = {exp.Add: left + right, exp.Sub: left - right, exp.Mul: left * right}[type(node)]
    literal = exp.Literal.number(str(abs(int(result))))
    return exp.Neg(this=literal) if result < 0 else literal


def _compare_numbers(node: Node) -> Node:
    left, right = number_of(node.this), number_of(node.expression)
    results = {
        "=": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right,
        ">=": left >= right, "IS NOT DISTINCT FROM": left == right, "IS DISTINCT FROM": left != right,
    }  # fmt: skip
    return exp.Boolean(this=results[COMPARISONS[type(node)]])
