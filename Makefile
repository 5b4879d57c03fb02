# icecore: every task of a developer. `make` alone lists them.

GO            ?= go
TAGS          := duckdb_arrow
FUZZTIME      ?= 30s
TORTURE_ROUNDS ?= 3
TORTURE_FLAGS ?=
BENCH_FLAGS   ?=
E2E_FLAGS     ?=
HARNESS_FLAGS ?=
VLLM_FLAGS    ?=
PYTHON        ?= python3
# All Go code, ours only.
GOFILES       := find . -name '*.go' -not -path '*/node_modules/*' -not -path './.venv/*' -not -path './.venv-trainers/*' -not -path './.venv-vllm/*'

# Pinned: a linter's next version finds other things.
GOLANGCI_VERSION := v2.15.0
GOLANGCI         := bin/golangci-lint-$(GOLANGCI_VERSION)

# The version is that of the nearest tag, else of the newest release in the
# changelog; before the first release it is what the source says.
VERSION := $(or $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null),$(shell sed -n 's/^\#\# \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md 2>/dev/null | head -n 1))
LDFLAGS := $(if $(VERSION),-X main.version=$(VERSION))
# Outside a repository that git will read, the revision cannot be stamped.
VCS     := $(if $(shell git rev-parse HEAD 2>/dev/null),,-buildvcs=false)

# The binary is rebuilt when go says so, not when make does.
.PHONY: help demo run build test check client trainers wheel e2e e2e-harness e2e-vllm fmt lint bench fuzz torture venv javascript clean
.DEFAULT_GOAL := help

## help: list these targets
help:
	@echo 'icecore, a trajectory warehouse for RL of language agents. Targets:'
	@sed -n 's/^## *\([a-z0-9-]*\): *\(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

## demo: build, start a fresh server, import captured rollouts, show what became of them
demo: build
	bin/icecore demo

## run: build and serve ./icecore-data on 127.0.0.1:7470
run: build
	bin/icecore serve

## build: make bin/icecore
build:
	$(GO) build -trimpath $(VCS) -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/icecore ./cmd/icecore

## test: what must pass: format, vet, the Python client, all Go tests but torture with the race detector, every example in the docs
test: check client javascript
	ICECORE_BINARY='$(CURDIR)/bin/icecore' ICECORE_PYTHON='$(CURDIR)/.venv/bin/python' \
		$(GO) test -race -timeout 20m -tags $(TAGS) $$($(GO) list -tags $(TAGS) ./... | grep -v '/torture$$')

## check: gofmt and go vet alone
check:
	@bad=$$($(GOFILES) | xargs gofmt -l); \
		if [ -n "$$bad" ]; then echo "not formatted (make fmt):"; echo "$$bad"; exit 1; fi
	$(GO) vet -tags $(TAGS) ./...
	$(GO) vet -tags '$(TAGS) failpoint' ./...

## client: type-check and test the Python client, against bin/icecore
client: build venv
	cd clients/python && ../../.venv/bin/mypy
	cd clients/python && ICECORE_BINARY='$(CURDIR)/bin/icecore' ../../.venv/bin/python -m pytest -q

## trainers: test the adapters against the trainers that PyPI has, on this machine's CPU (installs 650 MB)
trainers: build .venv-trainers/made
	cd clients/python && ICECORE_TRAINERS=1 ICECORE_BINARY='$(CURDIR)/bin/icecore' HF_HUB_OFFLINE=1 \
		../../.venv-trainers/bin/python -m pytest -q -W default tests/test_adapter_*.py

# Trainers stand in a venv of their own, on top of .venv: torch is there once.
.venv-trainers/made: clients/python/requirements-trainers.txt .venv/made
	.venv/bin/python -m venv .venv-trainers
	.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$(.venv-trainers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/icecore-venv.pth"
	.venv-trainers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r clients/python/requirements-trainers.txt
	@touch $@

## wheel: make dist/icecore-….whl, the Python client
wheel: .venv-build/made
	.venv-build/bin/python -m build --wheel --no-isolation --outdir dist clients/python

# Building needs a few small packages, and nothing of .venv with its gigabytes.
.venv-build/made: clients/python/requirements-build.txt
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "python3 lacks its venv module (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv-build
	.venv-build/bin/python -m pip install --quiet --disable-pip-version-check -r clients/python/requirements-build.txt
	@touch $@

## e2e: train a tiny policy with GRPO through a real server, and check every token on its way (minutes)
e2e: build venv
	PYTHONPATH='$(CURDIR)/clients/python/src' .venv/bin/python -B examples/grpo_tiny/run.py --binary bin/icecore $(E2E_FLAGS)

## e2e-harness: run Codex, Claude Code, Qwen Code, Pi and Gemini CLI, headless, through the gateway (npm installs 1 GB)
e2e-harness: build e2e/harness/node_modules/made
	$(GO) run -tags $(TAGS) ./e2e/harness --binary bin/icecore $(HARNESS_FLAGS)

# No install script is needed: they fetch what is only for terminals. The lock file
# has five optional @teddyzhu/clipboard-… by hand: npm leaves those that the registry
# lacks out of it, and npm ci then refuses the file.
e2e/harness/node_modules/made: e2e/harness/package.json e2e/harness/package-lock.json
	@command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || { echo "node 20 or newer, and npm, are needed"; exit 1; }
	cd e2e/harness && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

## e2e-vllm: run the gateway over a real vLLM on this machine's CPU, and compare each trace with what it said (installs 5 GB)
e2e-vllm: build .venv-vllm/made
	.venv-vllm/bin/python -B e2e/vllm/run.py --binary bin/icecore $(VLLM_FLAGS)

.venv-vllm/made: e2e/vllm/requirements.txt
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "python3 lacks its venv module (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps -r e2e/vllm/requirements.txt
	@touch $@

## fmt: format all Go code
fmt:
	$(GOFILES) | xargs gofmt -w -s

## lint: golangci-lint with .golangci.yml (its first run builds the linter, some minutes)
lint: $(GOLANGCI)
	$(GOLANGCI) run ./...

$(GOLANGCI):
	GOBIN='$(CURDIR)/bin' $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

## bench: measure ingest, drain, merge, delivery, asking and the gateway, and print a report
bench: build
	$(GO) run -tags $(TAGS) ./bench $(BENCH_FLAGS)

## fuzz: run every fuzz target for FUZZTIME (30s) each
fuzz:
	@grep -rHoE --include='*_test.go' --exclude-dir=.venv --exclude-dir=.venv-trainers --exclude-dir=.venv-vllm --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | \
	sed 's|^\(.*\)/[^/]*:func \(.*\)$$|\1 \2|' | sort -u | \
	while read -r pkg target; do \
		echo "fuzz $$pkg $$target for $(FUZZTIME)"; \
		$(GO) test -tags $(TAGS) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x "$$pkg" </dev/null || exit 1; \
	done

## torture: kill the server at every dangerous place, TORTURE_ROUNDS (3) times over, and check that nothing acknowledged is lost
torture:
	$(GO) test -count=1 -timeout 60m -tags '$(TAGS) failpoint' ./torture/... -torture.rounds=$(TORTURE_ROUNDS) $(TORTURE_FLAGS)

## venv: make .venv with what the tests need of Python (gigabytes: torch is in it)
venv: .venv/made
.venv/made: requirements-test.txt clients/python/requirements-test.txt clients/python/requirements-build.txt
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "python3 lacks its venv module (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt -r clients/python/requirements-test.txt
	@touch $@

## javascript: install Apache Arrow for JavaScript, a reader that is not ours, for the tests
javascript: apptest/javascript/node_modules/made
apptest/javascript/node_modules/made: apptest/javascript/package.json apptest/javascript/package-lock.json
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "node and npm are needed (Debian: apt-get install nodejs npm)"; exit 1; }
	cd apptest/javascript && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

## clean: remove what these targets made (never data)
clean:
	rm -rf bin dist .venv .venv-build .venv-trainers .venv-vllm
