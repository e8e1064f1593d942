"""What the documentation names is there: links, headings, files of the code, settings."""

import re
from pathlib import Path

import pytest

from safecritic.agents import methods

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT) for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = "agents|benchmarks|core|deploy|evaluate|examples|report|run|runtime|study|tasks|tests"
FILE = re.compile(rf"`(?:python )?((?:{FOLDERS})/[\w/]+\.\w+)")
GROUPS = "safety|multiplier|conservative|influence|refinement|screen"
SETTING = re.compile(rf"(?:`|--)((?:{GROUPS})\.[\w-]+)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page}: {link}"


def test_there_are_pages_and_links() -> None:
    assert len(PAGES) > 15
    assert "citing" in anchors(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_file_and_setting_named_is_there(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    roots = (ROOT, ROOT / "src" / "safecritic", ROOT / "tests")
    for name in FILE.findall(text):
        assert any((root / name).exists() for root in roots), name
    known = {name for method in methods.METHODS.values() for name in method.setting_names()}
    assert {name.replace("-", "_") for name in SETTING.findall(text)} <= known


def test_names_of_files_and_settings_are_recognised() -> None:
    assert FILE.findall("`core/a.py`, `python benchmarks/speed.py --rounds 2`, `a/b.py`") == [
        "core/a.py",
        "benchmarks/speed.py",
    ]
    assert SETTING.findall("`screen.tolerance`, `--safety.costly-share 0`, `a.b`") == [
        "screen.tolerance",
        "safety.costly-share",
    ]
