"""From a study's folder to its report: the page, and every table and figure as files beside it."""

from collections.abc import Callable
from pathlib import Path

from safecritic.files import make_folder
from safecritic.report import data, figures, page, static, tables


def build(
    study: Path, out: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write the report of a study in any state into `out`, by default STUDY/report.

    Tables are written as CSV and LaTeX, figures as PNG and PDF; `progress(done, total)` is called
    after every figure. Returns the page.
    """
    content = data.read(study)
    if out is None:
        out = make_folder(study / "report")
    for name in ("tables", "figures"):
        make_folder(out / name)
    all_tables = tables.all_tables(content, out)
    for table in all_tables:
        table.write_csv(out / "tables" / f"{table.name}.csv")
        table.write_latex(out / "tables" / f"{table.name}.tex")
    all_figures = figures.all_figures(content)
    for number, figure in enumerate(all_figures, 1):
        static.save(figure, out / "figures")
        if progress is not None:
            progress(number, len(all_figures))
    path = out / "index.html"
    page.write(content, all_tables, all_figures, path)
    return path


def build_page(study: Path, path: Path) -> None:
    """Write the page of a study alone, to be sent or published: it links to no file."""
    content = data.read(study)
    all_tables = tables.all_tables(content, path.parent)
    make_folder(path.parent)
    page.write(content, all_tables, figures.all_figures(content), path, files=False)
