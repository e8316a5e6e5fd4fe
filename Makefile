# The one door. Every target installs what it needs into .venv first; a repeated call with nothing changed costs nothing.
SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
UV := $(BIN)/uv
# Told apart from a failing test: everything here runs with Python's own warnings as they are, and no user site.
export PYTHONNOUSERSITE := 1

# The first Python that is new enough, the caller's own choice (make PYTHON=...) before all.
FIND_PYTHON = for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { python="$$candidate"; break; }; \
	done; \
	[ -n "$$python" ] || { echo "remit needs Python 3.11 or newer: none of $(PYTHON) python3 python3.11..3.14 on PATH is" >&2; exit 2; }
COMPILE = $(UV) pip compile --quiet --system-certs --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links

.PHONY: help demo run test smoke lint types check bench soak solve docs locks wheel clean environment-run environment-dev

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

environment-run environment-dev:
	@$(FIND_PYTHON); "$$python" tools/bootstrap.py $(@:environment-%=%)

demo: environment-run  ## run a real reviewed run on a small repository; no key needed
	@$(BIN)/remit demo

run: environment-run  ## run the program: make run ARGS='run "..." --model openai:gpt-5.2'
	@$(BIN)/remit $(ARGS)

test: environment-dev  ## run the tests, a file on each core: make test ARGS='tests/unit -k name'; JOBS=0 one by one
	@$(BIN)/python -m pytest -n $(or $(JOBS),auto) --dist loadfile $(ARGS)

smoke: environment-dev  ## a small local model does a small task: SMOKE_GGUF=FILE make smoke
	@$(BIN)/python -m pytest tests/smoke/local_model.py $(ARGS)

lint: environment-dev  ## style, who may import whom, file sizes, words that don't belong
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python tools/check_imports.py
	@$(BIN)/python tools/check_files.py

types: environment-dev  ## strict types
	@$(BIN)/pyright

check: lint types docs  ## all that is checked without running the tests

docs: environment-dev  ## check pages and links, generated pages too; make docs ARGS=--write makes those anew
	@$(BIN)/python tools/generate_reference.py $(or $(ARGS),--check)
	@$(BIN)/python tools/coverage_table.py $(or $(ARGS),--check)
	@$(BIN)/python tools/check_docs.py

bench: environment-dev  ## measure, beside the floor of each figure
	@$(BIN)/python -m bench $(ARGS)

soak: environment-dev  ## does a host leak, in ten minutes of 200 runs at once: make soak ARGS='--seconds 60'
	@$(BIN)/python -m bench.soak $(ARGS)

solve: environment-run  ## what a model solves: make solve ARGS='--model openai:gpt-5.2', or ARGS=--scripted
	@$(BIN)/remit bench solve $(ARGS)

locks: environment-dev  ## resolve the hashed locks anew: make locks ARGS=--upgrade
	@$(COMPILE) $(ARGS) requirements/uv.in -o requirements/uv.txt
	@$(COMPILE) $(ARGS) --extra anthropic pyproject.toml requirements/run.in -o requirements/run.txt
	@$(COMPILE) $(ARGS) --all-extras pyproject.toml requirements/dev.in -o requirements/dev.txt
	@$(COMPILE) $(ARGS) requirements/clients.in -o requirements/clients.txt
	@$(COMPILE) $(ARGS) requirements/agents.in -o requirements/agents.txt

wheel: environment-dev  ## build dist/*.whl
	@$(BIN)/python -m hatchling build -t wheel

clean:  ## remove what the targets made
	@rm -rf .venv .venv.lock build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache htmlcov .coverage
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
