"""Tables that follow from the code or from the committed runs say what these say."""

import html
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from safecritic import methods
from safecritic.report import page as report_page
from safecritic.report import tables as report_tables
from safecritic.report.verdict import verdicts

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tables() -> Any:
    spec = importlib.util.spec_from_file_location("doc_tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date(tables: Any) -> None:
    """Those of the README follow from the code, that of the results from the committed runs."""
    for page, names in tables.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert {match[2] for match in tables.MARKED.finditer(text)} == names
        assert text == tables.updated(text), f"write {page.name} again: python docs/tables.py"


def test_the_published_report_has_the_tables_of_the_committed_runs(tables: Any) -> None:
    text = (ROOT / "docs" / "results" / "report.html").read_text(encoding="utf-8")
    study = tables.study()
    for table in report_tables.all_tables(study, ROOT):
        shown = report_page._table(table, files=False)
        assert shown in text, f"{table.name}: safecritic report results/tasks --page"
    for one in verdicts(study):
        assert html.escape(one.text) in text, one.case


def test_the_readme_is_as_fast_as_the_page_of_speed_says() -> None:
    text = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for line, said in (
        ("DDPG steps/s on HalfCheetah over sbx's", "DDPG runs at {} times SBX's"),
        ("DDPG steps/s on HalfCheetah over sb3's", "{} times SB3's steps per second"),
        ("USC update over SC's", "USC's update takes {} times as long as SC's"),
    ):
        found = re.search(rf"^(?:holds|MISSED) +{re.escape(line)}: ([\d.]+)", text, re.M)
        assert found is not None
        assert said.format(found[1]) in readme


def test_every_method_has_its_row_and_its_page(tables: Any) -> None:
    rows = tables.methods_table().splitlines()[2:]
    for row, method in zip(rows, methods._TABLE, strict=True):
        assert row.startswith(f"| [`{method.name}`](docs/methods/{method.name}.md) |")
        assert (ROOT / "docs" / "methods" / f"{method.name}.md").is_file()


def test_a_bar_in_a_cell_does_not_end_it(tables: Any) -> None:
    assert tables.markdown(("a",), [("|x|",)]) == "| a |\n|---|\n| \\|x\\| |\n"


def listed_settings(page: str) -> tuple[set[str], set[str]]:
    """Return the settings in the table of a method's page, and the pages it refers to."""
    text = (ROOT / "docs" / "methods" / page).read_text(encoding="utf-8")
    section = text.split("## Settings\n")[1].split("\n## ")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    cells = [row.split("|")[2] for row in rows.splitlines()]
    return set(re.findall(r"`(\w+)`", " ".join(cells))), set(
        re.findall(r"\(([\w-]+\.md)\)", section)
    )


def test_method_pages_list_every_setting_and_no_other() -> None:
    for method in methods._TABLE:
        own, links = listed_settings(f"{method.name}.md")
        known = set(method.setting_names()) - set(method.parts)
        assert own <= known, (method.name, own - known)
        reached, seen = set(own), {f"{method.name}.md"}
        while links - seen:
            page = (links - seen).pop()
            seen.add(page)
            names, more = listed_settings(page)
            reached |= names
            links |= more
        assert known <= reached, (method.name, known - reached)
