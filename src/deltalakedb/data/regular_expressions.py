"""Owns regular expressions: DataFusion's, those of Rust, said in RE2's, which DuckDB has.

A pattern that RE2 reads otherwise is spelled anew; where that cannot be done it is refused, since its rows would be
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sqlglot import exp

from deltalakedb.exceptions import PredicateError

Node: TypeAlias = Any
"""A node of sqlglot's tree."""

_WORD: Final = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}"
_SPACE: Final = r"\s\x{0B}\x{85}\p{Z}"
_CLASSES: Final = {"d": r"\p{Nd}", "w": _WORD, "s": _SPACE}
"""Of all scripts in Rust, of ASCII in RE2."""
_FLAGS: Final = "imsUx"
_GROUP: Final = re.compile(r"\(\?P?<([A-Za-z_][\w.\[\]]*)>")
_INLINE_FLAGS: Final = re.compile(r"\(\?([A-Za-z]*)(-[A-Za-z]+)?([:)])")
_CODE_POINT: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[uU]\{([0-9A-Fa-f]+)\})")
_OWN_CLASS: Final = re.compile(r"\[:\^?[a-z]+:\]")
_REFERENCE: Final = re.compile(r"\$(?:\$|\{([^}]*)\}|([0-9A-Za-z_]+))")
_MAY_BE_NONE: Final = re.compile(r"[?*]|\{0")
"""A quantifier of something that may be left out."""
_ESCAPE_OR_CLASS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]")
_MAX_GROUP: Final = 9
"""The last group that RE2 writes into a replacement."""


@dataclass(slots=True)
class _Pattern:
    """A pattern in RE2's syntax."""

    text: str = ""
    groups: int = 0
    names: dict[str, int] = field(default_factory=dict)
    is_ascii: bool = False
    """Whether it holds for texts of ASCII characters only."""


def translate_regexp(node: Node, *, is_rule: bool = False) -> Node:
    """A function or operator with a pattern, as DuckDB has it. Patterns in a table's rules are Spark's, and stay."""
    if isinstance(node, exp.RegexpReplace):
        return _replace(node)
    if is_rule:
        return node
    if isinstance(node, exp.RegexpLike | exp.RegexpILike):
        flags = "i" if isinstance(node, exp.RegexpILike) else _flags_of("regexp_like", node.args.get("flag"))
        if flags is None:
            return exp.Null()
        text, pattern = _arguments("regexp_like", node.this, node.expression, flags)
        return _call("REGEXP_MATCHES", text, pattern)
    if isinstance(node, exp.RegexpCount):
        return _count(node)
    if isinstance(node, exp.RegexpInstr):
        flags = _flags_of("regexp_instr", node.args.get("parameters"))
        if flags is None:
            return exp.Null()
        text, pattern = _arguments("regexp_instr", node.this, node.expression, flags)
        node.set("this", text)
        node.set("expression", pattern)
        node.set("parameters", None)
    return node


def translate_regexp_match(arguments: list[Node]) -> Node:
    """`regexp_match`: the groups of the first match, or all of it if the pattern has none; null without a match."""
    name = "regexp_match"
    if len(arguments) not in (2, 3) or not _is_text(arguments[1]):
        raise PredicateError(f"{name} takes a text and a pattern, as text, and flags")
    flags = _flags_of(name, arguments[2] if len(arguments) == 3 else None)
    if flags is None:
        return exp.Null()
    pattern = _read(name, arguments[1].name, flags)
    if _may_leave_out_groups(pattern.text):
        raise PredicateError(f"{name}: {arguments[1].name!r} has groups that a match may leave out: not known here")
    text, written = _arguments(name, arguments[0], arguments[1], flags)
    numbers = range(1, pattern.groups + 1) if pattern.groups else (0,)
    parts = [_call("REGEXP_EXTRACT", text.copy(), written.copy(), exp.Literal.number(place)) for place in numbers]
    matches = _call("REGEXP_MATCHES", text, written)
    return exp.Case(ifs=[exp.If(this=matches, true=_call("LIST_VALUE", *parts))])


def _may_leave_out_groups(text: str) -> bool:
    """Whether a match may have groups without a text: those in one of several alternatives, or in what may be left out.

    `text` is a pattern of RE2's.
    """
    text = _ESCAPE_OR_CLASS.sub("x", text)
    opened: list[tuple[bool, bool]] = []  # what surrounds the brackets that are open
    has_group = has_choice = False
    starts: list[bool] = []
    for place, char in enumerate(text):
        if char == "(":
            opened.append((has_group, has_choice))
            starts.append(text[place + 1 : place + 2] != "?" or text.startswith("(?P<", place))
            has_group = has_choice = False
        elif char == "|":
            has_choice = True
        elif char == ")" and opened:
            if has_group and has_choice:
                return True
            has_inner = starts.pop() or has_group
            if has_inner and _MAY_BE_NONE.match(text, place + 1):
                return True
            has_group, has_choice = opened.pop()
            has_group |= has_inner
    return has_group and has_choice


def _replace(node: Node) -> Node:
    name = "regexp_replace"
    flags = _flags_of(name, node.args.get("modifiers"), more="g")
    replacement = node.args.get("replacement")
    if flags is None or replacement is None:
        return exp.cast(exp.Null(), "text")
    text, pattern = _arguments(name, node.this, node.expression, flags.replace("g", ""))
    if _is_text(replacement):
        read = _read(name, node.expression.name, "") if _is_text(node.expression) else None
        replacement = exp.Literal.string(_rewrite(replacement.name, read))
    else:
        replacement = _call("DL_REPLACEMENT", replacement)
    return _call("REGEXP_REPLACE", text, pattern, replacement, *([exp.Literal.string("g")] if "g" in flags else []))


def _count(node: Node) -> Node:
    name = "regexp_count"
    flags = _flags_of(name, node.args.get("parameters"))
    if flags is None:
        return exp.Null()
    text, pattern = _arguments(name, node.this, node.expression, flags)
    start = node.args.get("position")
    if start is not None:
        text = _call("SUBSTR", text, start)
    return exp.cast(_call("LEN", _call("REGEXP_EXTRACT_ALL", text, pattern)), "bigint")


def _flags_of(function: str, node: Node, more: str = "") -> str | None:
    """The flags of a call, each once; None if they are null."""
    if node is None:
        return ""
    if isinstance(node, exp.Null):
        return None
    if not _is_text(node):
        raise PredicateError(f"{function} takes its flags as a text that is written out")
    unknown = set(node.name) - set(_FLAGS + more)
    if unknown or not node.name:
        raise PredicateError(f"{function}: the flags {node.name!r} are not known; there are {', '.join(_FLAGS + more)}")
    return "".join(dict.fromkeys(node.name))


def _arguments(function: str, text: Node, pattern: Node, flags: str) -> tuple[Node, Node]:
    """The text and the pattern for RE2."""
    if isinstance(pattern, exp.Null):
        return text, pattern
    if not _is_text(pattern):
        # The pattern of a row is read by RE2 itself, which knows ASCII's classes only.
        guarded = _call("DL_MATCHED_BY", text, pattern.copy(), exp.Literal.string(function))
        if "x" in flags:
            raise PredicateError(f"{function} takes the flag 'x' with a pattern that is written out")
        if not flags:
            return guarded, pattern
        return guarded, exp.Paren(this=exp.DPipe(this=exp.Literal.string(f"(?{flags})"), expression=pattern.copy()))
    read = _read(function, pattern.name, flags)
    if read.is_ascii:
        text = _call("DL_ASCII", text, exp.Literal.string(function))
    return text, exp.Literal.string(read.text)


def _read(function: str, text: str, flags: str) -> _Pattern:
    """A pattern of Rust's for RE2; PredicateError for what only Rust knows."""

    def refuse(part: str) -> PredicateError:
        return PredicateError(f"{function}: {part!r} in the pattern {text!r} is not known here")

    pattern, place, spaced = _Pattern(), 0, "x" in flags
    inline = flags.replace("x", "")
    parts = [f"(?{inline})"] if inline else []
    while place < len(text):
        char = text[place]
        if char == "\\":
            part, length = _escape(text, place, refuse)
            pattern.is_ascii |= part in ("\\b", "\\B")
        elif char == "[":
            part, length = _class(text, place, refuse)
        elif char == "(":
            part, length = _open(text, place, pattern, refuse)
        elif spaced and char.isspace():
            part, length = "", 1
        elif spaced and char == "#":
            end = text.find("\n", place)
            part, length = "", (len(text) if end < 0 else end + 1) - place
        else:
            part, length = char, 1
        parts.append(part)
        place += length
    pattern.text = "".join(parts)
    return pattern


def _escape(text: str, place: int, refuse: Any, *, in_class: bool = False) -> tuple[str, int]:
    """An escape, as RE2 has it, and its length."""
    char = text[place + 1 : place + 2]
    code = _CODE_POINT.match(text, place)
    if code is not None:
        return f"\\x{{{code[1] or code[2] or code[3]}}}", len(code[0])
    if char in _CLASSES:
        return (_CLASSES[char] if in_class else f"[{_CLASSES[char]}]"), 2
    if char == "D":
        return r"\P{Nd}", 2
    if char and char in "WS":
        if in_class:
            raise refuse(f"\\{char}")
        return f"[^{_CLASSES[char.lower()]}]", 2
    if (char and char in "<>") or (char == "b" and text[place + 2 : place + 3] == "{"):
        raise refuse(text[place : place + 2])
    if char and char in "pP" and text[place + 2 : place + 3] == "{":
        end = text.find("}", place)
        return text[place : end + 1], max(end + 1 - place, 2)
    return text[place : place + 2], 2


def _class(text: str, place: int, refuse: Any) -> tuple[str, int]:
    """A set of characters in brackets, and its length."""
    parts, at = ["["], place + 1
    if text[at : at + 1] == "^":
        parts.append("^")
        at += 1
    first = True
    while at < len(text):
        char, two = text[at], text[at : at + 2]
        own = _OWN_CLASS.match(text, at)
        if char == "]" and not first:
            return "".join([*parts, "]"]), at + 1 - place
        if own is not None:
            part, length = own[0], len(own[0])
        elif char == "[" or (two in ("&&", "--", "~~") and not first):
            raise refuse(two)
        elif char == "\\":
            part, length = _escape(text, at, refuse, in_class=True)
        else:
            part, length = char, 1
        parts.append(part)
        at += length
        first = False
    return text[place:], len(text) - place  # RE2 says what is wrong


def _open(text: str, place: int, pattern: _Pattern, refuse: Any) -> tuple[str, int]:
    """The beginning of a group, and its length."""
    named = _GROUP.match(text, place)
    if named is not None:
        pattern.groups += 1
        pattern.names[named[1]] = pattern.groups
        return f"(?P<{named[1]}>", len(named[0])
    flags = _INLINE_FLAGS.match(text, place)
    if flags is not None:
        on, off = flags[1].replace("u", ""), flags[2] or ""
        if set(on + off) & set("uxR"):
            raise refuse(flags[0])
        return ("" if not on + off and flags[3] == ")" else f"(?{on}{off}{flags[3]}"), len(flags[0])
    if text[place + 1 : place + 2] != "?":
        pattern.groups += 1
    return "(", 1


def _rewrite(template: str, pattern: _Pattern | None) -> str:
    r"""A replacement such as `$1`, `${name}` or `\1`, for RE2."""
    names: Mapping[str, int] = {} if pattern is None else pattern.names
    groups = _MAX_GROUP if pattern is None else pattern.groups
    template = re.sub(r"\\(\d+)", r"${\1}", template)
    parts, place = [], 0
    for match in _REFERENCE.finditer(template):
        parts.append(template[place : match.start()].replace("\\", r"\\"))
        place = match.end()
        name = match[2] if match[1] is None else match[1]
        if name is None:
            parts.append("$")
            continue
        if not name.isdigit() and pattern is None:
            raise PredicateError(f"regexp_replace: the group {name!r} of a pattern that is not written out")
        number = int(name) if name.isdigit() else names.get(name, groups + 1)
        if _MAX_GROUP < number <= groups:
            raise PredicateError(f"regexp_replace: of the groups of a pattern the first {_MAX_GROUP} can be used")
        parts.append(f"\\{number}" if number <= groups else "")
    return "".join([*parts, template[place:].replace("\\", r"\\")])


def _is_text(node: Node) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _call(name: str, *arguments: Node) -> Node:
    return exp.Anonymous(this=name, expressions=[one.copy() for one in arguments])
