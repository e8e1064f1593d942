"""From a study's folder to its report: a page, every table as CSV and LaTeX, every figure as
PNG and PDF."""

from collections.abc import Callable
from pathlib import Path

from safecritic.report import data, figures, page, static, tables


def build(
    study: Path, out: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Write the report into `out`, by default STUDY/report; returns the page.

    Works on a study in any state. `progress(done, total)` is called after every figure.
    """
    found = data.read(study)
    out = study / "report" if out is None else out
    for name in ("tables", "figures"):
        (out / name).mkdir(parents=True, exist_ok=True)
    made = tables.all_tables(found, out)
    for table in made:
        table.write_csv(out / "tables" / f"{table.name}.csv")
        table.write_latex(out / "tables" / f"{table.name}.tex")
    drawn = figures.all_figures(found)
    for number, figure in enumerate(drawn, 1):
        static.save(figure, out / "figures")
        if progress is not None:
            progress(number, len(drawn))
    path = out / "index.html"
    page.write(found, made, drawn, path)
    return path
