# Every command of the project. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
# For two cores: a quarter of the tests' time is waiting for processes and deadlines.
JOBS ?= 3
UV ?= uv
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
  --generate-hashes --no-emit-index-url --no-emit-find-links
HELD := --constraints requirements/lock.txt
VENV := .venv
LIGHT := .venv-demo
BIN := $(VENV)/bin

# The environment holds what the lock says and nothing else. The tests start hundreds of processes: each of
# them would compile everything anew where a machine forbids to keep what was compiled.
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

# Named after this folder: a tree that was copied with its .venv would otherwise run the original.
INSTALLED := .installed-$(shell printf %s '$(CURDIR)' | cksum | cut -d' ' -f1)
STAMP := $(VENV)/$(INSTALLED)

# The demonstration needs no developer's tools. Where they are installed already it takes that environment.
DEMO := $(if $(wildcard $(STAMP)),$(VENV),$(LIGHT))

# The tests run side by side; BLAS threads on top of that only get in each other's way.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest

# A missing program is named before anything runs, not in the middle of an hour's work.
need = @command -v $(1) >/dev/null || { echo "This needs $(1); on Debian and Ubuntu: sudo apt install $(2)" >&2; exit 1; }

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: venv
venv: $(STAMP) ## Create .venv from the hash-locked requirements (PYTHON=python3.12 picks the Python)

# Naming another Python than the one in an environment builds it anew.
ifneq ($(origin PYTHON),file)
OTHERS := $(foreach env,$(VENV) $(LIGHT),$(shell \
  [ "$$($(PYTHON) -V 2>&1)" = "$$($(env)/bin/python -V 2>&1)" ] || echo $(env)))
ifneq ($(OTHERS),)
.PHONY: other-python
other-python:
	@rm -f $(OTHERS:=/$(INSTALLED))
$(OTHERS:=/$(INSTALLED)): other-python
endif
endif

$(STAMP) $(LIGHT)/$(INSTALLED): hatch_build.py core/eigenveil/site/kernels/kernels.c
$(STAMP): requirements/lock.txt pyproject.toml
$(LIGHT)/$(INSTALLED): requirements/runtime.txt requirements/build.txt pyproject.toml
$(STAMP) $(LIGHT)/$(INSTALLED):
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no '$(PYTHON)' here. Name a Python 3.11, 3.12 or 3.13: make venv PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "eigenveil needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Name another one: make venv PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "'$(PYTHON)' cannot create virtual environments: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian and Ubuntu: sudo apt install python$$version-venv" >&2; exit 1; }
	@[ -e $@ ] || { echo "Creating $(@D) with $$($(PYTHON) -V)"; $(PYTHON) -m venv --clear $(@D); }
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  $(patsubst %,-r %,$(filter requirements/%,$^))
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

.PHONY: demo
demo: $(DEMO)/$(INSTALLED) ## Run a whole study on this machine and write its report to demo-out/
	$(DEMO)/bin/eigenveil demo --out demo-out

.PHONY: lint
lint: $(STAMP) ## The gates before the tests: ruff, repo tests, mypy, import contracts
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(PYTEST) -q tests/repo
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo

.PHONY: openssl
openssl:
	$(call need,openssl,openssl)

.PHONY: test
test: openssl lint ## The gates, then every test that is not marked slow
	$(PYTEST) -n $(JOBS) --dist worksteal -m 'not slow' --ignore=tests/repo --ignore=tests/browser

# Every test but those of `lint` and `browser`: with the audit of `make audit`.
.PHONY: test-all
test-all: openssl $(STAMP)
	$(PYTEST) -q -n $(JOBS) --dist worksteal --hypothesis-profile=thorough --ignore=tests/repo --ignore=tests/browser

.PHONY: test-full
test-full: openssl lint ## The gates, then every test, then a part of the torture
	$(ONE_THREAD) $(BIN)/python -m tests.torture --check
	$(MAKE) test-all
	$(ONE_THREAD) $(BIN)/python -m tests.torture --jobs $(JOBS) --scale 0.1

.PHONY: everything
everything: $(STAMP) ## Run all that is promised and write docs/CHECKED.md (two hours; ARGS="--only tests", "--again")
	$(BIN)/python -m tests.everything $(ARGS)

.PHONY: matrix
matrix: $(STAMP) ## Try the wheel on each Python, NumPy and user; write docs/matrix.json (hours; ARGS="--only demo": minutes)
	$(BIN)/python -m tests.matrix $(ARGS)

.PHONY: browser
browser: $(STAMP) ## Open every page in Chromium, as people do (BROWSER_SHOTS=folder keeps pictures elsewhere)
	$(call need,chromium,chromium)
	$(PYTEST) -q tests/browser

.PHONY: audit
audit: $(STAMP) ## Attack every mechanism, honest and with planted faults, 200,000 releases a side
	$(PYTEST) -n $(JOBS) -q tests/statistical

.PHONY: golden
golden: $(STAMP) ## Write the files of this version that all later ones must open, into tests/compat
	$(BIN)/python -m tests.compat.golden

.PHONY: mutants
mutants: $(STAMP) ## Plant a fault in each claim and see that a test catches it (ARGS="--only P13 P17", ARGS=--third)
	$(BIN)/python -m tests.mutants --jobs $(JOBS) $(ARGS)

.PHONY: torture
torture: $(STAMP) ## What the daemons must survive, one line a check (ARGS="--only charges", "--scale 0.1", "--possible")
	$(ONE_THREAD) $(BIN)/python -m tests.torture --jobs $(JOBS) $(ARGS)

.PHONY: fuzz
fuzz: $(STAMP) ## Hunt for inputs that end in an error nobody foresaw (ARGS="--minutes 1", "--seed 7")
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz $(ARGS)

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks
	$(BIN)/python benchmarks/run.py

.PHONY: paper-figures
paper-figures: $(STAMP) ## Measure and draw docs/figures anew where they are not up to date (ARGS=--quick: into build/)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.paper_figures --jobs $(JOBS) $(ARGS)

.PHONY: papers
papers: $(STAMP) ## Run every scheme of the papers in its own regime (ARGS=--small: three; ARGS=--write: docs/papers.md)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.papers $(ARGS)

.PHONY: growth
growth: $(STAMP) ## Measure how costs grow with records, columns, sites ...; draw docs/figures/growth (ARGS=--quick: into build/)
	$(BIN)/python -m benchmarks.growth $(ARGS)

.PHONY: format
format: $(STAMP) ## Format the code and repair what ruff can repair
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

.PHONY: wheel
wheel: $(STAMP) ## Build the wheel into dist/; the same tree gives the same bytes
	$(BIN)/python -m hatchling build -t wheel
	sha256sum dist/*.whl

.PHONY: release
release: $(STAMP) ## Build a release of the last commit into dist/: source, wheels, their origin (ARGS=--check: twice)
	$(BIN)/python -m deploy.release $(ARGS)

.PHONY: licences
licences: $(STAMP) ## List the licence of every package that a role installs; fail if one is not allowed
	$(BIN)/python -m deploy.release.licences

# Whichever engine answers; a program without its daemon builds nothing.
ENGINE = $(shell for one in podman docker; do "$$one" info >/dev/null 2>&1 && { echo "$$one"; break; }; done)

.PHONY: image
image: ## Build the container images of both roles (needs podman or docker, and the internet)
	@[ -n "$(ENGINE)" ] || { echo "This needs podman or docker; on Debian and Ubuntu: sudo apt install podman" >&2; exit 1; }
	for role in coordinator site; do \
	  $(ENGINE) build -f deploy/container/Containerfile --build-arg ROLE=$$role -t eigenveil-$$role . ; \
	done

.PHONY: sbom
sbom: $(STAMP) ## List what runs in production as CycloneDX JSON: dist/sbom.json
	mkdir -p dist
	$(BIN)/python -m cyclonedx_py requirements requirements/runtime.txt --output-reproducible -o dist/sbom.json

.PHONY: vulnerabilities
vulnerabilities: $(STAMP) ## Ask the public database about everything in the lock (needs the internet)
	$(BIN)/python -m pip_audit -r requirements/lock.txt --require-hashes --disable-pip --strict

.PHONY: docs
docs: $(STAMP) ## Draw and run what the pages show, then build the documentation site into build/docs
	$(BIN)/python docs/refresh.py
	$(BIN)/python docs/worked.py
	$(MAKE) docs-site

.PHONY: picture
picture: $(STAMP) ## Run the demonstration and draw the picture of its report that README shows
	$(call need,chromium,chromium)
	$(BIN)/python docs/draw_report.py

.PHONY: docs-site
docs-site: $(STAMP) ## Run every block of the guide, build the site, warnings as errors; changes no page
	$(ONE_THREAD) $(BIN)/python docs/run_blocks.py
	$(BIN)/python docs/write_reference.py
	$(ONE_THREAD) $(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . build/docs
	$(BIN)/python docs/check_site.py

# A further language: one folder beside `de`, with a .po that is filled in.
CONSOLE := client/eigenveil_client/site/commands/console
TEXTS := common/eigenveil_common/web client/eigenveil_client/site core/eigenveil/queries
.PHONY: messages
messages: $(STAMP) ## Bring the catalogues of the pages' texts up to date, and compile them
	mkdir -p build
	$(BIN)/pybabel -q extract -F pyproject.toml -k mark -k plural:1,2 --no-location --sort-output \
	  --project eigenveil -o build/messages.pot $(TEXTS)
	$(BIN)/pybabel -q update -i build/messages.pot -d $(CONSOLE)/locale -D eigenveil --no-fuzzy-matching \
	  --ignore-obsolete --ignore-pot-creation-date
	$(BIN)/pybabel -q compile -d $(CONSOLE)/locale -D eigenveil

.PHONY: proto
proto: $(STAMP) ## Generate the Python code of proto/ anew
	$(BIN)/python proto/generate.py

.PHONY: lock
lock: ## Write requirements/*.txt anew from pyproject.toml (needs uv)
	@command -v $(UV) >/dev/null || { \
	  echo "make lock needs uv; install it with: pipx install uv" >&2; exit 1; }
	$(LOCK) --extra dev --output-file requirements/lock.txt pyproject.toml
	$(LOCK) --extra site $(HELD) --output-file requirements/site.txt pyproject.toml
	$(LOCK) --extra site --extra sources $(HELD) --output-file requirements/site-sources.txt pyproject.toml
	$(LOCK) --extra site --extra dask $(HELD) --output-file requirements/site-dask.txt pyproject.toml
	$(LOCK) --extra site --extra genotypes $(HELD) --output-file requirements/site-genotypes.txt pyproject.toml
	$(LOCK) --extra coordinator --extra postgres $(HELD) --output-file requirements/coordinator.txt pyproject.toml
	$(LOCK) --extra analyst $(HELD) --output-file requirements/analyst.txt pyproject.toml
	$(LOCK) --extra estimators $(HELD) --output-file requirements/estimators.txt pyproject.toml
	$(LOCK) --extra site --extra coordinator --extra postgres --extra analyst $(HELD) \
	  --output-file requirements/runtime.txt pyproject.toml
	printf 'hatchling\neditables\n' | $(LOCK) $(HELD) --output-file requirements/build.txt -

.PHONY: clean
clean: ## Remove the environment, caches and everything that was built
	rm -rf $(VENV) $(LIGHT) demo-out build dist docs/reference core/eigenveil/site/kernels/kernels.so .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find core common server client proto tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
