# The two commands: make quickstart, make test. They need Python 3.11 or newer and make; all else goes into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: quickstart test lint prove bench-data bench-convert clean

quickstart: $(VENV)/.installed
	$(BIN)/python examples/quickstart/quickstart.py

# Every test, on the tiny models that the tests make and on the quickstart's base model, which is fetched first.
# Two processes with one thread each: torch's own threads would get in each other's way.
test: $(VENV)/.installed
	OUTLIVE_TEST_MODEL="$$($(BIN)/python examples/quickstart/base_model.py)" \
		OUTLIVE_TEST_GGUF="$$($(BIN)/python examples/quickstart/base_model.py --gguf)" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n 2 -rs

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What takes too long for every change: its tables are in docs/measured.md.
prove: $(VENV)/.installed
	$(BIN)/python benchmarks/prove.py

# How fast chats are prepared, beside TRL in an environment of its own (made on first use): benchmarks/data.md.
# OUTLIVE_CASES names the folder of cases.
bench-data: $(VENV)/.installed
	$(BIN)/python benchmarks/data.py

# Conversion of a model of 2 GB beside cp and save_pretrained: benchmarks/convert.md.
bench-convert: $(VENV)/.installed
	$(BIN)/python benchmarks/convert.py --base "$$($(BIN)/python examples/quickstart/base_model.py)"

clean:
	rm -rf $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,dev]"
	touch $@
