"""The section of docs/from-deltalake.md that lists the differences, made from `differences.toml`."""

from __future__ import annotations

import re

from tests.api.signatures import PAGE
from tests.differential.lines import all_lines
from tests.differential.listed import Reason, read_reasons

BEGIN, END = "<!-- differences: made by python -m tests.differential -->", "<!-- end of differences -->"


def render() -> str:
    """How many calls are the same, and a table of what differs and why."""
    total = len(all_lines())
    reasons = read_reasons()
    different = {
        mode: sum(mode == where for one in reasons.values() for where, _ in one.calls) for mode in ("path", "sql")
    }
    lines = [
        f"Of {total:,} calls, {_share(total, different['path'])} give the same result on paths, and "
        f"{_share(total, different['sql'])} on tables of a",
        "catalog. The others differ as follows:",
        "",
        "| what differs | why | calls on paths, on SQL | such as |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one.title} | {_why(one)} | {_count(one, 'path')}, {_count(one, 'sql')} | {_example(one)} |"
        for one in sorted(reasons.values(), key=lambda reason: -len(reason.calls))
    ]
    return "\n".join(lines)


def _share(total: int, different: int) -> str:
    return f"{(total - different) / total:.1%}".replace("%", " %")


def _why(reason: Reason) -> str:
    return f"{reason.reason} (to be mended)" if reason.to_mend else reason.reason


def _count(reason: Reason, mode: str) -> int:
    return sum(where == mode for where, _ in reason.calls)


def _example(reason: Reason) -> str:
    text = min((name.partition(": ")[2] for _, name in reason.calls), key=len)
    return f"`{text.replace('|', chr(92) + '|')}`"


def put_into(page: str) -> str:
    """The page with the section as it is now."""
    made = f"{BEGIN}\n\n{render()}\n\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: made, page, flags=re.DOTALL)


def write() -> None:
    PAGE.write_text(put_into(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
