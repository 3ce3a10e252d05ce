# Two commands, nothing else to set up: `make demo` makes real files, `make test` checks everything.
# Both make their environment in .venv, from the interpreter that PYTHON names. WORKERS share the tests, a thread each.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
INPUTS  := pyproject.toml $(wildcard plugins/*/pyproject.toml) constraints.txt
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2
REFUSED := fv needs Python 3.11 or newer; install it, or name it as in 'make PYTHON=python3.12 demo'.

.PHONY: demo test soak certificates

demo: $(VENV)/ready
	$(BIN)/python examples/demo.py

test: $(VENV)/ready-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	for tests in $(wildcard plugins/*/tests docs/*/tests); do $(BIN)/mypy $$tests || exit 1; done
	$(BIN)/lint-imports --no-logo
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

soak: $(VENV)/ready-dev
	$(BIN)/pytest --soak

# Renews what the plugins ship: a certificate stands for the very sources that it was made with.
certificates: $(VENV)/ready-dev
	rm -f plugins/*/fv_*/assets/certificates/*.json
	OMP_NUM_THREADS=1 $(BIN)/fv parity certify wan21/micro --into plugins/fv-wan21/fv_wan21/assets/certificates
	OMP_NUM_THREADS=1 $(BIN)/fv parity certify wan21/tiny --into plugins/fv-wan21/fv_wan21/assets/certificates
	OMP_NUM_THREADS=1 $(BIN)/fv parity certify wan-causal/tiny --into plugins/fv-wan-causal/fv_wan_causal/assets/certificates
	OMP_NUM_THREADS=1 $(BIN)/fv parity certify ltx2/tiny --into plugins/fv-ltx2/fv_ltx2/assets/certificates
	OMP_NUM_THREADS=1 $(BIN)/fv parity certify ltx2/tiny-base --into plugins/fv-ltx2/fv_ltx2/assets/certificates
	OMP_NUM_THREADS=1 $(BIN)/fv parity certify cosmos3/tiny --into plugins/fv-cosmos3/fv_cosmos3/assets/certificates
	OMP_NUM_THREADS=1 $(BIN)/fv parity certify bagel/tiny --into plugins/fv-bagel/fv_bagel/assets/certificates

$(VENV)/ready-dev: $(VENV)/ready requirements-dev.txt
	$(INSTALL) --no-build-isolation --requirement requirements-dev.txt
	touch $@

# What a user needs; no linters. The build backend is installed once instead of once per distribution.
$(VENV)/ready: $(INPUTS) requirements.txt | $(BIN)/pip
	@echo "Installing fv into $(VENV). The first time downloads 0.3 GB with a CPU-only torch, 2.8 GB with CUDA."
	$(INSTALL) hatchling editables
	$(INSTALL) --no-build-isolation --requirement requirements.txt
	touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "$(REFUSED) $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo absent)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
