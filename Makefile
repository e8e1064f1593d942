# make check: everything a change must pass
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: check format lint types imports test site clean

$(BIN)/pytest: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

check: format lint types imports test site

format: $(BIN)/pytest
	$(BIN)/ruff format --check src tests benchmarks docs examples

lint: $(BIN)/pytest
	$(BIN)/ruff check src tests benchmarks docs examples

types: $(BIN)/pytest
	$(BIN)/mypy

imports: $(BIN)/pytest
	$(BIN)/lint-imports --no-cache --no-logo

test: $(BIN)/pytest
	$(BIN)/pytest -n auto

site: $(BIN)/pytest
	$(BIN)/zensical build --strict
	$(BIN)/python docs/check_site.py site

clean:
	rm -rf site .cache $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
