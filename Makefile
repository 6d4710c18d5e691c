# demo: set up and run the main job. test: set up and pass the tests. check: everything but the slow tests. fix: format. slow: all tests but the longest. soak: those.
VENV ?= .venv
RUN = $(VENV)/bin/python -m
ALONE = tests/stages/evaluator/timed
SHARED = $(addprefix --ignore ,$(ALONE))

.PHONY: demo test check fix slow soak

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
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports
	$(MAKE) test

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
