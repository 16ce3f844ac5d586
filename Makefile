# Everything stays inside the checkout, except pip's own cache.
PYTHON ?= python3
BIN := .venv/bin
# Tests and studies start many processes: each would compile all of the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test docs datasets advice bench attack soak walkthrough check licences dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/ready ## create .venv with fedrelay and its tools, at the versions of constraints.txt

# Constraints by environment reach the isolated build too: older pip reads the first variable there, newer the second.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup ## compare fedavg, fedcyclic and fedseq on real digits, one class per client
	$(BIN)/fedrelay demo

# Real browsers, servers and kills have their turns on a busy machine: what failed must pass when it is run alone.
TESTS := OMP_NUM_THREADS=1 XDG_CACHE_HOME="$(CURDIR)/.test_cache" $(BIN)/python -m pytest --basetemp=.tmp_cache
test: check ## the checks, then all tests
	$(TESTS) -n 2 --dist loadfile --no-loadscope-reorder || { test $$? = 1 && echo "once more, alone:" && $(TESTS) --last-failed --last-failed-no-failures none; }

docs: setup ## build the documentation site into site/, which opens from a disk: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

datasets: setup ## fedavg and fedseq on CIFAR-10, FEMNIST, Shakespeare and PACS, from DATA=folder (about half an hour)
	for name in cifar10 femnist shakespeare pacs; do \
		$(BIN)/fedrelay compare experiments/data_$$name.toml --out runs/data/$$name $(if $(DATA),--data-dir $(DATA)) || exit 1; \
	done

advice: setup ## judge `fedrelay advise` on many federations, from DATA=folder, into docs/advise.md (a quarter of an hour of one core)
	$(BIN)/python -m fedrelay.studies.advise.validate experiments/advise.toml --out runs/advise --page docs/advise.md $(if $(DATA),--data-dir $(DATA))

.peers/ready: bench/speed/peers.txt
	$(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --quiet --requirement bench/speed/peers.txt
	touch $@

bench: setup .peers/ready ## measure speed beside other frameworks, into docs/performance.md (under 45 minutes; on a machine that does nothing else)
	$(BIN)/python bench/speed/run.py --peers .peers/bin/python

MINUTES ?= 60
attack: setup ## kills, full disks, damaged files and settings, for MINUTES=60, into docs/reliability.md (Linux)
	$(BIN)/python attack/run.py --minutes $(MINUTES)

soak: setup ## 1,000 rounds with real clients, in which they and their server are killed again and again, into docs/deploy.md (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python tests/remote/soak.py --rounds 1000 --page docs/deploy.md

walkthrough: setup ## docs/deploy.md word for word, between network namespaces (Linux)
	$(BIN)/python tests/remote/walkthrough.py

check: setup ## format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

licences: setup ## list the licence of everything that is installed
	$(BIN)/pip-licenses --order=license --with-urls

dist: setup ## build the sdist, the wheel from it, and the list of what it is made with (SBOM, CycloneDX), into dist
	rm -rf dist
	PIP_CONSTRAINT="$(CURDIR)/constraints.txt" $(BIN)/python -m build
	$(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible --output-file dist/fedrelay.cdx.json

clean: ## remove .venv, caches and build results (runs are kept)
	rm -rf .venv .peers .*_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
