"""The site of docs/ has every page, and its links lead where those in the repository do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.site_pages import OUTSIDE, adapt_links

ROOT = Path(__file__).parents[2]


def test_the_navigation_lists_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r": ([\w./-]+\.md)$", navigation, re.MULTILINE)
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    assert sorted(listed) == sorted([*pages, *OUTSIDE.values()])


@pytest.mark.parametrize(
    ("uri", "link", "adapted"),
    [
        ("verified.md", "[results](../bench/RESULTS.md)", "[results](bench/RESULTS.md)"),
        ("index.md", "[the mirror](docs/mirror.md#the-fence)", "[the mirror](mirror.md#the-fence)"),
        ("tests/README.md", "[engines](../docs/engines.md)", "[engines](../engines.md)"),
        ("index.md", "[Apache-2.0](LICENSE)", "Apache-2.0"),  # not a page: the site shows its name only
        ("upkeep.md", "[a page](missing.md)", "[a page](missing.md)"),  # a strict build fails on it
        ("index.md", "[elsewhere](https://delta.io/x.md)", "[elsewhere](https://delta.io/x.md)"),
    ],
)
def test_a_link_leads_to_the_same_page_in_the_site(uri: str, link: str, adapted: str) -> None:
    assert adapt_links(link, uri) == adapted


def test_a_link_to_a_missing_file_stays_broken() -> None:
    assert adapt_links("[a script](../bench/missing.py)", "verified.md") == "[a script](../bench/missing.py)"
