# demo: set up and run the main job. test: set up and pass the tests. check: everything but the slow tests. fix: format.
VENV ?= .venv
RUN = $(VENV)/bin/python -m

.PHONY: demo test check fix slow

demo:
	@.ci/install $(VENV)
	$(RUN) ksflow problem=fp8_gemm

# The judge's tests time kernels, so they have the machine to themselves.
test:
	@.ci/install $(VENV) dev
	$(RUN) pytest -q -n 2 --ignore tests/stages/evaluator --ignore tests/corpus
	$(RUN) pytest -q tests/stages/evaluator tests/corpus

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

slow:
	$(RUN) pytest -q -m slow
