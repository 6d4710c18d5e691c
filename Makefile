# demo: set up and run the main job. test: set up and pass the tests. check: everything but the slow tests. lints: what of it
# runs nothing. fix: format. slow: all tests but the longest. soak: those.
VENV ?= .venv
RUN = $(VENV)/bin/python -m
ALONE = tests/stages/evaluator/timed
SHARED = $(addprefix --ignore ,$(ALONE))

.PHONY: demo test check lints types style contracts pages image wheel fix slow soak

demo:
	@.ci/install $(VENV)
	$(RUN) ksflow problem=fp8_gemm

# What times kernels has the machine to itself.
test:
	@.ci/install $(VENV) dev
	$(RUN) pytest -q -n 2 --dist worksteal $(SHARED)
	$(RUN) pytest -q $(ALONE)

check:
	@.ci/install $(VENV) dev
	@$(MAKE) --jobs 2 lints
	$(MAKE) test

# Each keeps one core busy: `make --jobs 2` has two of them go side by side.
lints: types style contracts

types:
	$(RUN) mypy

style:
	$(RUN) ruff check .
	$(RUN) ruff format --check .

contracts:
	$(VENV)/bin/lint-imports

pages:
	timeout 180 $(RUN) mkdocs build --strict

image:
	$(VENV)/bin/hadolint Dockerfile

wheel:
	.ci/wheel

fix:
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

# With those of `test`: what takes a worker seconds to set up, quick and slow tests then share.
slow:
	@.ci/install $(VENV) dev
	$(RUN) pytest -q --durations 12 -m 'not (gpu or llm or soak)' -n 5 --dist worksteal $(SHARED)
	$(RUN) pytest -q --durations 12 -m 'not (gpu or llm or soak)' $(ALONE)

soak:
	$(RUN) pytest -q --durations 12 -m soak -n 2 --dist worksteal
