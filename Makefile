# Needs python3 >= 3.11, make and a C compiler; everything else goes into .venv, from the pins in requirements.lock (what
# running needs) and requirements-dev.lock (what tests and checks need beside that).
# `make test PYTHON=python3.12` sets up with another Python (after `make distclean`, where .venv exists).

PYTHON ?= python3
BIN := .venv/bin
DOCS := .venv-docs/bin
# -qq: errors only
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Tests start some hundred processes, each of which would compile our modules again: a quarter of its time to start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv dev demo test run-tests e2e long check lint format types architecture review bench studies campaign docs notebooks dist lock clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: .venv/.blr-package ## make .venv and install this package and the pinned ones that running it needs (does nothing when up to date)

dev: .venv/.blr-dev ## the same, and the pinned packages that tests and checks need

demo: venv ## classify OpenNGC's galaxies: catalogues, models and reports in blr-demo/
	$(BIN)/blr demo --out blr-demo

# A file's tests stay together, for they share servers; the longest files come first (tests/conftest.py).
# `check` runs the architecture's.
PROCESSORS = $(shell $(BIN)/python -c 'import os; print(min(4, os.cpu_count() or 1))')
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --ignore tests/test_architecture.py
END_TO_END = tests/e2e tests/flows/demo tests/flows/orchestration tests/flows/test_cluster.py tests/flows/test_killed.py \
  tests/flows/test_urls.py tests/flows/test_release_store.py tests/flows/test_hats_outputs.py \
  tests/release/test_killed.py tests/release/test_store.py tests/release/test_errata.py
test: dev ## all checks, and beside them all tests but the long ones and those from end to end
	@$(MAKE) --no-print-directory --jobs=2 run-tests check

# First of the two, so that the checks, which use one processor, take the second place.
run-tests: dev
	$(PYTEST) -n $(PROCESSORS) -m 'not long' $(END_TO_END:%=--ignore %) tests

# A process more than two processors, for these wait for servers and for each other.
e2e: dev ## the tests from end to end: plain installs, the demonstration, a cluster, object stores, killed runs, errors of releases, Prefect's server and worker, pages in a browser (Debian: chromium, chromium-driver)
	$(PYTEST) -n 3 -m 'not long' $(END_TO_END)

long: dev ## the long tests: many repeats, a second database, every default candidate, Slurm (Debian: slurm-wlm, munge)
	$(PYTEST) -n 3 -m long tests

check: lint format types architecture review ## what pre-commit checks too

lint: dev ## ruff's rules
	$(BIN)/ruff check

format: dev ## ruff's formatting, unchanged files only (`.venv/bin/ruff format` rewrites them)
	$(BIN)/ruff format --check

types: dev ## mypy, strict
	$(BIN)/mypy

architecture: dev ## docs/architecture.md against the imports
	$(BIN)/python -m pytest --quiet tests/test_architecture.py

review: dev ## the Scientific Python repository review
	$(BIN)/sp-repo-review --show err .

bench: .venv/.blr-bench ## our times beside those of others: benchmarks/RESULTS.md, and of trainings: docs/performance.md (hours; installs Torch and CatBoost, gigabytes)
	$(BIN)/python benchmarks/bench_speed.py
	$(BIN)/python benchmarks/bench_training.py --page docs/performance.md

studies: .venv/.blr-bench ## log losses, censuses, audits, sets and reviews beside those of others (each goes on where it ended)
	@for study in labels census audit sets review; do echo "== $$study"; $(BIN)/python "benchmarks/bench_$$study.py" || exit 1; done

campaign: dev ## runs killed, cut off, crowded, files damaged: the harm done (make campaign KILLS=100 FAULTS=10000 ONLY="kills faults" SEED=1; hours)
	$(BIN)/python -m tests.campaign $(if $(KILLS),--kills $(KILLS)) $(if $(FAULTS),--faults $(FAULTS)) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) $(if $(LEDGER),--ledger $(LEDGER))

# Spelling and sentences first, since they take seconds.  A warning fails: a link that leads nowhere, a name that is not there.
docs: .venv-docs/.blr-docs ## the site in build/site/: pages, reference, notebooks with their pictures; spelling and sentences checked
	$(DOCS)/codespell docs blr catalogs flows *.md
	$(DOCS)/python docs/making/reading.py
	$(DOCS)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto docs build/site
	@echo "the site is in build/site/index.html"

notebooks: .venv-docs/.blr-docs ## run the notebooks of docs/notebooks, and fail where a cell fails (make notebooks ONLY=votes)
	$(DOCS)/python docs/making/notebooks.py $(ONLY)

# This wheel is pure Python, for platforms that have no other; those with the loops in C are made by the release workflow.
# Twine and check-wheel-contents come by uv, into a cache of its own: nobody else needs them.
dist: dev ## wheel and source distribution in dist/, checked as the package index and conda-forge do
	rm -rf dist
	BLR_NO_COMPILER=1 $(BIN)/python -m hatchling build -d dist
	$(BIN)/uv tool run --quiet twine@7.0.0 check --strict dist/*
	$(BIN)/uv tool run --quiet check-wheel-contents@0.6.3 --toplevel blr,catalogs,flows dist/*.whl

# The two other files hold only what requirements.lock does not.
COMPILE = $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-annotate --quiet \
  --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)
left_out = $$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package \1/p' $(1) | sort -u)
lock: dev ## rewrite the lock files from pyproject.toml (make lock UPGRADE=1: with the newest versions)
	$(COMPILE) --extra demo --extra dask --extra remote --group build --output-file requirements.lock
	$(COMPILE) --group dev --constraint requirements.lock $(call left_out,requirements.lock) --output-file requirements-dev.lock
	$(COMPILE) --group docs --constraint requirements.lock $(call left_out,requirements.lock) --output-file docs/requirements.lock

clean: ## remove what was built, cached and demonstrated
	rm -rf build dist blr-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find blr catalogs flows tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## and .venv
	rm -rf .venv .venv-docs blr/_loops.*.so

# uv installs in seconds what takes pip minutes.  Where there is no uv for a machine, or it fails, pip does the work, from
# the same pins but uv's own (`make venv UV=` asks for that).
UV := $(BIN)/uv
UV_PIN = /^uv==/,/[^\\]$$/
by_uv = command -v "$(UV)" > /dev/null && "$(UV)" pip $(1) --quiet --python $(2)/python
pins = { $(call by_uv,install,$(2)) --system-certs --no-deps --requirement $(1); } || { sed '$(UV_PIN)d' $(1) > .venv/pins.lock; \
  $(2)/python -m pip -qq --disable-pip-version-check install --no-deps --requirement .venv/pins.lock; }

# Stamps inside .venv: new pins reinstall everything, a changed pyproject.toml or C source just this package.
# A .venv that was made by other means is kept and brought to the pins.
.venv/.blr-pins: requirements.lock
	@if ! [ -x $(BIN)/python ]; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "got $$($(PYTHON) --version 2>&1), expected Python 3.11 or newer: name one, as in  make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }; \
	  echo "making .venv with $$($(PYTHON) --version) and some 150 pinned packages: half a minute by uv, minutes by pip"; \
	  $(PYTHON) -m venv .venv || { rm -rf .venv; \
	    echo "$(PYTHON) cannot make virtual environments (Debian: install python3-venv)" >&2; exit 1; }; \
	fi
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "got a .venv of $$($(BIN)/python --version 2>&1), expected Python 3.11 or newer: make distclean, then again" >&2; exit 1; }
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(BIN)/python -m ensurepip
	@sed -n '$(UV_PIN)p' requirements-dev.lock > .venv/uv.lock
	@[ -z "$(UV)" ] || $(PIP) install --no-deps --requirement .venv/uv.lock || echo "got no uv for this machine: pip installs, in minutes"
	@$(call pins,requirements.lock,$(BIN))
	@touch $@

.venv/.blr-package: .venv/.blr-pins pyproject.toml hatch_build.py $(wildcard blr/loops/*)
	@{ $(call by_uv,install,$(BIN)) --no-deps --no-build-isolation --editable .; } || $(PIP) install --no-deps --no-build-isolation --editable .
	@$(call by_uv,check,$(BIN)) || $(PIP) check
	@# Python compiles what commands load, and keeps it: uv does not, and some shells set PYTHONDONTWRITEBYTECODE.
	@$(BIN)/python -m compileall -q blr catalogs flows
	@DO_NOT_TRACK=1 PREFECT_HOME=.venv/prefect $(BIN)/python -c 'import flows.train, flows.classify, flows.reprocess, flows.review, flows.cli._models'
	@touch $@

.venv/.blr-dev: requirements-dev.lock .venv/.blr-package
	@$(call pins,requirements-dev.lock,$(BIN))
	@$(call by_uv,check,$(BIN)) || $(PIP) check
	@touch $@

# What benchmarks alone need; it changes no pinned package.
.venv/.blr-bench: .venv/.blr-dev
	sed -n 's/^\([a-z0-9-]*==[^ ]*\).*/\1/p' requirements.lock requirements-dev.lock > .venv/versions.txt
	$(PIP) install --no-build-isolation --constraint .venv/versions.txt --editable '.[bench]'
	@touch $@

# What the site alone needs.  It lies beside .venv, whose packages it sees, so that .venv stays as small as it is.
.venv-docs/.blr-docs: docs/requirements.lock .venv/.blr-package
	@[ -x $(DOCS)/python ] || $(BIN)/python -m venv .venv-docs
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("purelib")) + ")")' \
	  > "$$($(DOCS)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/blr-venv.pth"
	@$(call pins,docs/requirements.lock,$(DOCS))
	@touch $@
