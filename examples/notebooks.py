"""Writes the notebooks from their scripts: `python examples/notebooks.py`.

A script in percent format is the source: `# %%` begins a cell of code, `# %% [markdown]` one of
text.
"""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = ("first_policy", "own_environment", "inside_a_critic")
HIDDEN = re.compile(
    r"  # (?:type: ignore\[[\w-]+\]|noqa: \w+)$", re.MULTILINE
)  # for checkers alone


def cells(script: str) -> list[tuple[str, str]]:
    """Return the kind and the text of each cell of a script."""
    found = []
    for part in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        if head.strip() == "[markdown]":
            found.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip()))
        else:
            found.append(("code", HIDDEN.sub("", text).strip()))
    return found


def notebook(script: str) -> str:
    """Return a notebook, as JSON, with the cells of a script and no outputs."""
    made: list[dict[str, object]] = []
    for number, (kind, text) in enumerate(cells(script)):
        cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": made,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1) + "\n"


if __name__ == "__main__":
    for name in NAMES:
        text = notebook((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        (FOLDER / f"{name}.ipynb").write_text(text, encoding="utf-8")
