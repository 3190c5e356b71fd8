# demo   the main job end to end, in .demo/, as any user
# test   every test, in short form (installs what the tests need: see tests/setup/prepare.sh)
# soak   the same suites with their full counts
# check  formatting, lint, types and the pure tests, in .venv/
# bench  ours beside every peer, as ratios
.PHONY: demo test soak check bench clean

PYTHON ?= python3

demo:
	@PYTHON="$(PYTHON)" tests/setup/make_venv.sh .demo/venv .
	@PATH="$(CURDIR)/.demo/venv/bin:$$PATH" examples/demo/demo.sh .demo

test:
	@tests/setup/prepare.sh
	@tests/setup/run.sh short

soak:
	@tests/setup/prepare.sh
	@tests/setup/run.sh soak

check:
	@PYTHON="$(PYTHON)" tests/setup/make_venv.sh .venv '.[test,check]'
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/python -m pytest -q -p no:cacheprovider

bench:
	@tests/setup/prepare.sh
	@tests/setup/run.sh bench

clean:
	rm -rf .demo .venv build dist
