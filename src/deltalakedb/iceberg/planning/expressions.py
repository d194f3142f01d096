"""Parses Iceberg's expressions from JSON: the older form with terms and values, and the newer one with operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deltalakedb.exceptions import PredicateError

UNARY: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
COMPARISONS: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "starts-with", "not-starts-with"})
SETS: Final = frozenset({"in", "not-in"})

_MAX_DEPTH: Final = 100
_LONG_CHAIN: Final = 4
_SWAPPED: Final = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq", "eq": "eq", "not-eq": "not-eq"}


@dataclass(frozen=True, slots=True)
class Term:
    """A column, by name or by field id, and the transform that is applied to it."""

    name: str = ""
    field_id: int | None = None
    transform: str = "identity"


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it is in JSON, and the name of its type if the expression has it."""

    value: Any
    data_type: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    value: bool


@dataclass(frozen=True, slots=True)
class Test:
    """A condition on a term: `op` is one of UNARY, COMPARISONS or SETS."""

    op: str
    term: Term
    literals: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    child: Expression


@dataclass(frozen=True, slots=True)
class Undecided:
    """A condition that statistics cannot decide: two columns compared, or a function that is not a transform."""

    reason: str
    terms: tuple[Term, ...] = ()


Expression = Constant | Test | And | Or | Not | Undecided


def parse_expression(json: Any) -> Expression:
    """Parses an expression; PredicateError if it is none."""
    return _parse(json, 0)


def _parse(json: Any, depth: int) -> Expression:
    if isinstance(json, bool):
        return Constant(json)
    if not isinstance(json, Mapping) or depth > _MAX_DEPTH:
        raise PredicateError("Cannot parse expression: " + ("nested too deep" if depth > _MAX_DEPTH else _show(json)))
    kind = _kind(json)
    if kind in ("true", "false"):
        return Constant(kind == "true")
    if kind == "literal" and isinstance(json.get("value"), bool):
        return Constant(json["value"])
    if kind in ("and", "or"):
        parts = tuple(_parse(operand, depth + 1) for operand in _operands(json, kind))
        return And(parts) if kind == "and" else Or(parts)
    if kind == "not":
        return Not(_parse(_required(json, "child"), depth + 1))
    if kind in UNARY:
        return _unary(json, kind)
    if kind in COMPARISONS:
        return _comparison(json, kind)
    if kind in SETS:
        term = _value_expression(json["child"] if "child" in json else _required(json, "term"))
        return Test(kind, term, _literals(json)) if isinstance(term, Term) else _undecided(term)
    if kind == "apply":
        return Undecided("a function of the client", _terms_in(json, depth))
    raise PredicateError(f"Cannot parse expression: unknown type {_show(json.get('type'))}")


def _kind(json: Mapping[str, Any]) -> str:
    return str(_required(json, "type")).lower().replace("_", "-")


def _required(json: Mapping[str, Any], name: str) -> Any:
    if name not in json:
        raise PredicateError(f"Cannot parse expression: {name!r} is missing in {_show(json)}")
    return json[name]


def _show(json: Any) -> str:
    return repr(json)[:200]


def _operands(json: Mapping[str, Any], kind: str) -> list[Any]:
    """The operands of a chain of `and` or of `or`, which clients nest hundreds of levels deep."""
    operands: list[Any] = []
    waiting: list[Any] = [json]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping) and "type" in node and _kind(node) == kind:
            waiting += [_required(node, "right"), _required(node, "left")]
        else:
            operands.append(node)
    return operands


def balanced(json: Any, depth: int = 0) -> Any:
    """The same expression with long chains as balanced trees: JSON writers do not nest as deep as clients' chains."""
    kind = _kind(json) if isinstance(json, Mapping) and "type" in json and depth <= _MAX_DEPTH else ""
    if kind == "not" and "child" in json:
        return {**json, "child": balanced(json["child"], depth + 1)}
    if kind not in ("and", "or"):
        return json
    operands = [balanced(operand, depth + 1) for operand in _operands(json, kind)]
    if len(operands) <= _LONG_CHAIN:
        return json
    while len(operands) > 1:
        joined = [
            {"type": kind, "left": left, "right": right}
            for left, right in zip(operands[::2], operands[1::2], strict=False)
        ]
        operands = joined + operands[2 * len(joined) :]
    return operands[0]


def _unary(json: Mapping[str, Any], kind: str) -> Expression:
    if "value" in json or "values" in json:
        raise PredicateError(f"Cannot parse {kind} predicate: it has a value")
    term = _value_expression(json["child"] if "child" in json else _required(json, "term"))
    return Test(kind, term) if isinstance(term, Term) else _undecided(term)


def _comparison(json: Mapping[str, Any], kind: str) -> Expression:
    newer = "left" in json or "right" in json
    left = _value_expression(_required(json, "left" if newer else "term"), may_be_literal=newer)
    right = _value_expression(_required(json, "right" if newer else "value"), may_be_literal=True, is_term=newer)
    if isinstance(left, Term) and isinstance(right, Literal):
        return Test(kind, left, (right,))
    if isinstance(left, Literal) and isinstance(right, Term) and kind in _SWAPPED:
        return Test(_SWAPPED[kind], right, (left,))
    return _undecided(left, right)


def _undecided(*operands: Term | Literal | Undecided) -> Undecided:
    terms = [item for item in operands if isinstance(item, Term)]
    terms += [term for item in operands if isinstance(item, Undecided) for term in item.terms]
    return Undecided("an operand that is neither a column nor a value", tuple(terms))


def _literals(json: Mapping[str, Any]) -> tuple[Literal, ...]:
    values, data_type = _required(json, "values"), None
    if isinstance(values, Mapping):
        data_type = values.get("data-type")
        values = _required(values, "values")
    if not isinstance(values, list):
        raise PredicateError(f"Cannot parse literals from non-array: {_show(values)}")
    return tuple(_literal(value, None if data_type is None else str(data_type)) for value in values)


def _literal(json: Any, data_type: str | None = None) -> Literal:
    if isinstance(json, Mapping):
        if json.get("type") != "literal":
            raise PredicateError(f"Cannot parse type as a literal: {_show(json.get('type'))}")
        data_type = json.get("data-type", data_type)
        json = _required(json, "value")
    too_large = type(json) is int and not -(2**63) <= json < 2**63
    if json is None or too_large or isinstance(json, list | Mapping):
        raise PredicateError(f"Cannot convert JSON to literal: {_show(json)}")
    return Literal(json, data_type)


def _value_expression(json: Any, *, may_be_literal: bool = False, is_term: bool = True) -> Term | Literal | Undecided:
    """A term, a literal or a function of them. In the older form a text is a term, in a newer operand it is a value."""
    kind = json.get("type") if isinstance(json, Mapping) else None
    if kind == "reference":
        return _reference(json)
    if kind == "transform":
        inner = _value_expression(_required(json, "term"))
        if not isinstance(inner, Term):
            raise PredicateError(f"Cannot parse reference: {_show(json)}")
        return Term(inner.name, inner.field_id, str(_required(json, "transform")))
    if kind == "apply" and is_term:
        return _apply(json)
    if isinstance(json, str) and not may_be_literal:
        return Term(json)
    if may_be_literal:
        return _literal(json)
    raise PredicateError(f"Cannot parse reference (requires string or object): {_show(json)}")


def _reference(json: Mapping[str, Any]) -> Term:
    if isinstance(json.get("id"), int) and not isinstance(json["id"], bool):
        return Term(field_id=json["id"])
    name = json.get("name", json.get("term"))
    if not isinstance(name, str):
        raise PredicateError(f"Cannot parse reference: {_show(json)}")
    return Term(name)


def _apply(json: Mapping[str, Any]) -> Term | Undecided:
    """A transform of a column, as a function: `bucket(16, id)`, `day(ts)`."""
    arguments = _required(json, "arguments")
    if not isinstance(arguments, list):
        raise PredicateError(f"Cannot parse arguments from non-array: {_show(arguments)}")
    values = [_value_expression(item, may_be_literal=True) for item in arguments]
    terms = [value for value in values if isinstance(value, Term)]
    numbers = [value.value for value in values if isinstance(value, Literal) and type(value.value) is int]
    function = json.get("function")
    if isinstance(function, str) and len(terms) == 1 and len(values) == 1 + len(numbers) and len(numbers) < 2:
        name = function.lower().removesuffix("s")
        return Term(terms[0].name, terms[0].field_id, f"{name}[{numbers[0]}]" if numbers else name)
    return Undecided("a function of the client", tuple(terms))


def _terms_in(json: Mapping[str, Any], depth: int) -> tuple[Term, ...]:
    applied = _apply(json) if depth <= _MAX_DEPTH else Undecided("nested too deep")
    return (Term(applied.name, applied.field_id),) if isinstance(applied, Term) else applied.terms
