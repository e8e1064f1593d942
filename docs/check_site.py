"""Checks the built site: `python docs/check_site.py site`. Every link, picture and anchor is there.

Zensical's strict build looks at links between pages; this looks at what a browser would be given:
pictures, files, anchors, the pages of the navigation, and pages that no page leads to.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "__top", "__skip"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of what an element points to, and of its name."""
        for name, value in attrs:
            if name in ("href", "src") and value and tag != "link":
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def problems(site: Path) -> list[str]:
    """Return what is wrong, a line each."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    found, reached = [], {(site / "index.html").resolve(), (site / "404.html").resolve()}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            where = f"{path.relative_to(site.resolve())}: {link}"
            if not target.is_file():
                found.append(f"{where}: not there")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{where}: no such anchor")
            if target != path:
                reached.add(target)
    found += [f"{path.name}: no page leads to it" for path in pages if path not in reached]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or "every link of the site leads somewhere")
    sys.exit(bool(wrong))
