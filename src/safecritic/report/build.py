"""From a study to its report: the page, and every table as a file beside it."""

from pathlib import Path

from safecritic.core.files import make_folder
from safecritic.report import data, figures, page, tables


def build(study: Path, out: Path | None = None) -> Path:
    """Write the report of a study in any state into `out`, by default STUDY/report.

    Returns the page; tables are beside it as CSV.
    """
    if out is None:
        packed = study.with_name(f"{study.stem}-report")
        out = packed if study.is_file() else study / "report"
    return build_page(study, out / "index.html", files=True)


def build_page(study: Path, path: Path, files: bool = False) -> Path:
    """Write the page of a study; without `files` it links to none and can be sent alone."""
    content = data.read(study)
    make_folder(path.parent)
    all_tables = tables.all_tables(content, path.parent)
    if files:
        make_folder(path.parent / "tables")
        for table in all_tables:
            table.write_csv(path.parent / "tables" / f"{table.name}.csv")
    page.write(content, all_tables, figures.all_figures(content), path, files)
    return path
