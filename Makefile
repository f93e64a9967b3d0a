# Works with Python >= 3.11, make and git alone: uv comes by pip into .venv.
# The system's Python where it will do: distributions build theirs with profiles of its own runs, one that is compiled by
# hand seldom is, and takes half as long again. `make PYTHON=python3` takes the first of the path.
PYTHON ?= $(or $(shell /usr/bin/python3 -c 'import sys, ensurepip; sys.version_info >= (3, 11) and print(sys.executable)' 2>/dev/null),python3)
VENV := .venv
UV := $(VENV)/bin/uv
RUN := $(UV) run --no-sync
ARGS ?=
# What a site installs: the server, the dashboard, the sidecar; nothing that only tests or builds need.
SITE := --all-extras --no-extra dev --no-dev
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/$(VENV)
export UV_PYTHON_DOWNLOADS := never
# The machine's own authorities, where it has any: behind a site's proxy uv's built-in ones trust nobody.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),)
export UV_SYSTEM_CERTS ?= true
endif
# Tests start hundreds of programs: without kept bytecode each start costs two seconds of a processor more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test compiled deep check bench screenshot formats grafana chart contract calibration fuzz bootstrap everything format sbom deb image-test licences packages clean

run: bootstrap
	$(VENV)/bin/foreshock demo $(ARGS)

test: everything
	@$(MAKE) --silent --jobs=2 compiled packages
	$(RUN) pytest -n auto --dist loadgroup $(ARGS)

# The tests' bytecode, made once while packages are installed: else each process of a run makes all of it.
# What is wrong here is told by the run.
compiled: everything
	@$(RUN) pytest --collect-only -qq -n0 $(ARGS) >/dev/null 2>&1 || true

# Properties alone, each with a hundred times its examples: hours.
deep: everything packages
	$(RUN) pytest -n auto --dist loadgroup -m hypothesis --hypothesis-profile=deep $(ARGS)

check: bootstrap
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports

bench: bootstrap packages
	$(RUN) python -m benchmarks $(ARGS)

screenshot: bootstrap packages
	PYTHONPATH=tests $(RUN) python tests/real/screenshot.py docs

formats: bootstrap
	PYTHONPATH=tests $(RUN) python tests/formats_page.py

grafana: bootstrap
	PYTHONPATH=tests $(RUN) python tests/grafana.py

# deploy/kubernetes, as helm makes it of deploy/helm.
chart: bootstrap packages
	PYTHONPATH=tests $(RUN) python tests/chart.py

contract: bootstrap
	PYTHONPATH=tests $(RUN) python tests/contract.py

# The simulator's figures of real sites, fitted anew in some minutes; DATA is the folder that holds `faults` and `m100`.
calibration: bootstrap
	PYTHONPATH=tests $(RUN) python tests/calibration.py $(DATA)

fuzz: bootstrap
	PYTHONPATH=tests $(RUN) python tests/fuzz.py $(ARGS)

format: bootstrap
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

bootstrap: $(VENV)/.synced

# What tests need besides: Ray is 240 MB that few installations want.
everything: $(VENV)/.synced-all

$(UV):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "foreshock needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet uv

$(VENV)/.synced: $(UV) pyproject.toml uv.lock
	$(UV) sync --quiet --locked --all-extras --no-extra ray --inexact
	touch $@

$(VENV)/.synced-all: $(VENV)/.synced
	$(UV) sync --quiet --locked --all-extras --inexact
	touch $@

# What a site installs, as CycloneDX and as a list for `pip install --require-hashes`, out of the lock alone.
sbom: $(UV)
	@mkdir -p build
	$(UV) export --quiet --frozen $(SITE) --format cyclonedx1.5 --output-file build/foreshock.cdx.json
	$(UV) export --quiet --frozen $(SITE) --no-emit-workspace --format requirements.txt --output-file build/requirements.txt

# Two Debian packages, for a node and for a server, into build/: for the Debian and the Python of this machine.
deb: $(UV)
	@mkdir -p build
	UV=$(abspath $(UV)) DEB_RULES_REQUIRES_ROOT=no debian/rules clean binary

# Builds the container image from nothing and runs its programs: minutes, so `make test` leaves it out.
image-test: bootstrap
	@.ci/packages buildah mmdebstrap
	FORESHOCK_IMAGE_TEST=1 $(RUN) pytest -n0 -v -s tests/container $(ARGS)

# docs/licences.md, from what the installed packages say of themselves; a licence that is not on the list is an error.
licences: everything
	PYTHONPATH=tests $(RUN) python tests/licences.py

packages:
	@.ci/packages
	@.ci/helm
	@.ci/axe
	@nice .ci/kubernetes

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
