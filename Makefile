# The tasks of this repository. `make help` lists them.

GO      ?= go
FUZZ    ?= 30s
PACKAGE ?= ./...

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build ./locktop
	$(GO) build -o locktop .

PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64

.PHONY: dist
dist: ## build archives for PLATFORMS, a deb and an rpm for Linux, an SPDX file and checksums, in dist/
	@bash .ci/dist $(PLATFORMS)

.PHONY: rename
rename: ## give the module the path MODULE, in go.mod, imports and documents
	@bash .ci/rename "$(MODULE)"

.PHONY: test
test: ## run the tests; without redis-server some are skipped
	$(GO) test $(PACKAGE)

.PHONY: test-lab
test-lab: ## run the tests of lab, a module of its own
	cd lab && $(GO) test ./...

.PHONY: test-long
test-long: ## run the tests of the first tier and the long ones, as CI does
	LOCKTOP_LONG=1 $(GO) test -timeout=20m $(PACKAGE)

RUNS ?= 20

.PHONY: steady
steady: ## run the first tier RUNS (20) times beside four busy loops; each run must pass
	@bash .ci/steady $(RUNS)

.PHONY: race
race: ## run the tests in random order under the race detector
	$(GO) test -race -shuffle=on $(PACKAGE)

SERVERS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/locktop/servers

.PHONY: matrix
matrix: ## run the tests on Redis 6.0, 7.0, 8.0 and Valkey 8.1, fetched to SERVERS (needs apt-get)
	@bash .ci/servers $(SERVERS)
	@bash .ci/matrix $(SERVERS)

.PHONY: lint
lint: ## check formatting, vet and staticcheck
	@bash .ci/lint

.PHONY: vuln
vuln: ## look for known vulnerabilities; skipped if their database cannot be reached
	@bash .ci/vuln

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ (30s)
	@bash .ci/fuzz $(FUZZ)

.PHONY: bench
bench: ## measure against other lock libraries and write lab/docs/benchmarks.md (needs redis-server)
	cd lab && $(GO) run ./bench -out docs/benchmarks.md

.PHONY: bench-quick
bench-quick: ## run the benchmarks in under a minute: one line for each goal
	@cd lab && $(GO) run ./bench -quick

.PHONY: report-card
report-card: ## run certify on the clients of lab/clients and write lab/docs/report-card.md, and card.html with drawings
	cd lab/clients && $(GO) run ../reportcard -out ../docs/report-card.md -html ../../card.html

.PHONY: gobench
gobench: ## run the Go benchmarks of PACKAGE (./...)
	$(GO) test -run '^$$' -bench . -benchmem $(PACKAGE)

DURATION ?= 10m

.PHONY: simulate
simulate: ## simulate random clients of package lock for DURATION (10m) under a fake clock; SEED=N repeats the choices
	cd lab && LOCKTOP_SIMULATE=$(DURATION) LOCKTOP_SEED=$(SEED) $(GO) test ./simulate -v -timeout 0

ORDERS ?= 10000

.PHONY: explore
explore: ## run ORDERS (10000) orders of the messages of each kind of lock; see lab/docs/proof.md
	cd lab && LOCKTOP_EXPLORE=$(ORDERS) $(GO) test ./explore -run 'TestExplore$$' -v -timeout 0

MUTANTS ?= -defects

.PHONY: mutants
mutants: ## break package lock on purpose and see which test notices (needs redis-server); MUTANTS='-sample 40'
	cd lab && $(GO) run ./mutants $(MUTANTS)

.PHONY: soak
soak: ## run load on all kinds of locks for DURATION (10m) under random faults; SEED=N repeats a run (needs redis-server)
	cd lab && $(GO) run ./soak -duration $(DURATION) $(if $(SEED),-seed $(SEED))

.PHONY: smoke
smoke: ## start the built program in a terminal and press keys (needs tmux)
	@bash .ci/smoke

.PHONY: shots
shots: ## make new screenshots/ with the running program (needs tmux)
	$(GO) run ./screenshots

.PHONY: ci
ci: ## run all steps of CI, or those of one PART: check, race, lab or long
	@bash .ci/run $(PART)
