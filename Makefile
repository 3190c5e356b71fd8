# demo   the main job end to end, in .demo/, as any user
# test   every test, in short form (installs what the tests need: see tests/setup/prepare.sh)
# soak   the same suites with their full counts
# check  formatting, lint, types and the pure tests, in .venv/
# bench  ours beside every peer, as ratios
# options  the C flag table of the SPANK plugin, from pyxis_py/options.py
.PHONY: demo test soak check bench clean options

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

ENROOT = $(PYTHON) -c 'import sys; from enroot_py.cli.main import main; sys.exit(main())'

texts:
	@$(ENROOT) man --output share/man/man1
	@mkdir -p share/bash-completion/completions share/zsh/site-functions \
	    share/fish/vendor_completions.d
	@$(ENROOT) completion bash > share/bash-completion/completions/enroot
	@$(ENROOT) completion zsh > share/zsh/site-functions/_enroot
	@$(ENROOT) completion fish > share/fish/vendor_completions.d/enroot.fish

clean:
	rm -rf .demo .venv build dist

options:
	@$(PYTHON) -c 'from pyxis_py.options import emit_c; print(emit_c(), end="")' > spank_shim/options_table.h
	@$(PYTHON) -c 'from pyxis_py.plugin.seccomp_header import emit_seccomp_c; print(emit_seccomp_c(), end="")' > spank_shim/seccomp_filter.h
