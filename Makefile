# Works on a fresh machine that has Python >= 3.11 and make; `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
STAMP := $(VENV)/.installed
# A process a core, of one thread so that none waits for another; PYTEST_ARGS="-n 0" is one for all.
PYTEST := python -m pytest -n auto --maxprocesses 8 --dist worksteal
PYTEST_ARGS ?=
test test-slow test-browser test-oldest: export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-browser test-oldest lint format bench results figures docs links notebook wheel notes clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## create .venv and install dsf with its development tools

# pip only brings uv; uv resolves torch and torchvision to builds that belong together.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP) ## train, evaluate and report on embedded images, minutes on two cores
	$(BIN)/dsf demo

test: $(STAMP) ## run the tests, minutes on two cores
	$(BIN)/$(PYTEST) -m "not slow and not browser and not network and not gpu" $(PYTEST_ARGS)

test-slow: $(STAMP) ## run the slow tests that a CPU can run
	$(BIN)/$(PYTEST) -m "slow and not browser and not network and not gpu" $(PYTEST_ARGS)

test-browser: $(STAMP) ## open pages in Chromium
	$(BIN)/$(PYTEST) -m "browser and not slow and not network and not gpu" $(PYTEST_ARGS)

# Compilers differ most from one torch to the next, and err without a word.
test-oldest: $(OLDEST)/.installed ## run the tests of compiled code with the oldest torch
	$(OLDEST)/bin/$(PYTEST) -m "compiles and not slow and not gpu" $(PYTEST_ARGS) tests

$(OLDEST)/.installed: $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(OLDEST)
	grep -vE '^(torch|torchvision|triton|setuptools|nvidia-.*|cuda-.*)==' constraints.txt > $(OLDEST)/constraints.txt
	$(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python -c $(OLDEST)/constraints.txt \
		-e '.[dev]' torch==2.11.0 torchvision==0.26.0
	touch $@

lint: $(STAMP) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure speed against rivals
	$(BIN)/python benchmarks/special.py
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/batch_norm.py
	$(BIN)/python benchmarks/augment.py
	$(BIN)/python benchmarks/loader.py
	$(BIN)/dsf bench step
	$(BIN)/python benchmarks/kill.py
	$(BIN)/python benchmarks/knn.py
	$(BIN)/python benchmarks/corruption.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/stream.py

results: $(STAMP) ## write docs/results.md, its figures and both READMEs' tables from results/
	$(BIN)/dsf reproduce --render
	$(BIN)/python benchmarks/readme.py
	$(BIN)/python tools/headline.py

notebook: $(STAMP) ## run examples/tour.ipynb and keep what it shows, a minute or two
	$(BIN)/python tools/run_notebook.py examples/tour.ipynb

wheel: $(STAMP) ## build the wheel and the source archive in dist/
	$(BIN)/uv build --quiet --clear --out-dir dist
	@ls dist

notes: ## print what the changelog says of VERSION, by default of what is not released yet
	@$(PYTHON) tools/release_notes.py $(VERSION)

figures: $(STAMP) ## draw the pictures of the site
	$(BIN)/python docs/tools/figures.py

# What is silenced is news of other programs, not a warning about this site.
docs: $(STAMP) ## build the site in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo site/index.html

links: $(STAMP) ## list the links that lead elsewhere; nothing is fetched
	@$(BIN)/python docs/tools/links.py

clean: ## remove the environment and caches
	rm -rf $(VENV) $(OLDEST) .mypy_cache .pytest_cache .ruff_cache .hypothesis site
