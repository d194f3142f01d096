"""Pages of a listing: everything without a page token, otherwise names in their order, after the token's."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from deltalakedb.serve.iceberg.call import Call
from deltalakedb.serve.iceberg.errors import bad_request

T = TypeVar("T")

PAGE_SIZE = 1000
"""The length of a page if the client does not say it, and the longest one."""
_MARK = b"after:"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items of a listing, and the token of the next page; None if there is none."""

    items: Sequence[T]
    next_token: str | None


def page_of(call: Call, items: Sequence[T], key: Callable[[T], str]) -> Page[T]:
    """Return the page that the request asks for; `items` are sorted by `key`, which is unique.

    A token holds the last key of the page before, so that names which come and go meanwhile move no others.
    """
    size = _page_size(call)
    token = call.query.get("pageToken")
    if token is None:
        return Page(items, None)
    start = bisect_right(items, _key_in(token), key=key) if token else 0
    page = items[start : start + size]
    is_last = start + size >= len(items)
    return Page(page, None if is_last or not page else _token_after(key(page[-1])))


def _page_size(call: Call) -> int:
    text = call.query.get("pageSize")
    if text is None:
        return PAGE_SIZE
    if not text.isascii() or not text.isdigit() or int(text[:18]) == 0:
        raise bad_request("the parameter pageSize must be a number above 0")
    return min(int(text[:18]), PAGE_SIZE)


def _token_after(key: str) -> str:
    return base64.urlsafe_b64encode(_MARK + key.encode()).decode().rstrip("=")


def _key_in(token: str) -> str:
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        mark, key = data[: len(_MARK)], data[len(_MARK) :].decode()
    except (binascii.Error, ValueError):
        mark, key = b"", ""
    if mark != _MARK:
        raise bad_request("the parameter pageToken is not one of this catalog's; start again with an empty one")
    return key
