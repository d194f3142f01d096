"""A hook of MkDocs: puts pages from outside docs/ into the site, and adapts relative links between all pages.

Pages link to each other by their paths in the repository, so they also work on a code host. In the site a page is at
its path below docs/; a page from outside docs/ is at its path in the repository, and README.md is the first page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "bench/RESULTS.md": "bench/RESULTS.md",
    "tests/README.md": "tests/README.md",
}
"""Pages from outside docs/: the path in the repository, and the path in the site."""
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return adapt_links(markdown, page.file.src_uri)


def adapt_links(markdown: str, uri: str) -> str:
    """The page with each link to another page as the site has it; a link to any other file becomes its text.

    A link to a file that does not exist stays, so that a strict build fails.
    """
    here = next((path for path, place in OUTSIDE.items() if place == uri), f"docs/{uri}")

    def replace(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), link["path"]))
        in_docs = path.removeprefix("docs/") if path.startswith("docs/") and path.endswith(".md") else None
        target = OUTSIDE.get(path, in_docs)
        if target is None:
            return link["text"] if (ROOT / path).exists() else link[0]
        return f"[{link['text']}]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{link['anchor'] or ''})"

    return _LINK.sub(replace, markdown)
