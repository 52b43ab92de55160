# make test is everything: it installs what it needs into .cache and runs all
# suites. make check is what to run before a commit.

SHELL := /bin/bash
FUZZTIME ?= 10s
# For make record-suites: a pattern of names, and how often each is run.
SUITES ?= .*
RUNS ?= 3
# Kinds of brokers for make e2e, e.g. BROKERS=kafka or BROKERS=embedded,nats-2.10.29
BROKERS ?=

REPORT = go run ./test/report
# Client suites in the order they run, the fastest to fail first.
E2E = usage command keys txn settings cli golden webui clients streams connect kgo suites kill
export STREAM_E2E_BROKERS = $(BROKERS)

# Suites share two cores and measure time: one after another, whatever -j says.
.NOTPARALLEL:
.PHONY: all build setup check fmt vet unit race contract fuzz bench bench-gateways bench-kafka sim sim-nightly scale vuln deploy faults cluster chaos compaction retention hostile e2e record golden-record record-suites nightly docs-clients test clean

all: build

build: ## bin/stream
	CGO_ENABLED=0 go build -o bin/stream .

setup: ## what tests need that is not Go, into .cache
	test/e2e/setup.sh

check: fmt vet unit ## before a commit

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt these files:"; echo "$$out"; exit 1; }

vet:
	go vet ./...
	cd test/e2e && go vet ./...
	cd test/faults && go vet ./...
	cd test/cluster && go vet ./...
	cd test/deploy && go vet ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; else echo "golangci-lint is not installed: not run"; fi

unit:
	$(REPORT) unit ./...

race:
	$(REPORT) race -race -timeout 15m ./...

contract: ## the store's contract against the NATS versions of the field
	STREAM_TEST_NATS_VERSIONS=2.10.29,2.11.x,2.x $(REPORT) -skips fail contract -count=1 -run '^TestContractServers$$' ./pubsub/jetstream

sim: ## faults from a seed, partitions and whole gateways: SIM_SEEDS=10000, or SIM_SEED=n SIM_REPEAT=50
	SIM_SEEDS=$(or $(SIM_SEEDS),10000) $(REPORT) sim-partition -count=1 -timeout 30m ./test/sim/partition
	SIM_SEEDS=$(or $(SIM_SEEDS),2000) $(REPORT) sim-gateway -count=1 -timeout 30m -skip '^TestTransactions$$' ./test/sim/gateway
	SIM_SEEDS=$(or $(SIM_SEEDS),500) $(REPORT) sim-transactions -count=1 -timeout 30m -run '^TestTransactions$$' ./test/sim/gateway
	SIM_SEEDS=$(or $(SIM_SEEDS),10000) $(REPORT) sim-compaction -count=1 -timeout 30m -run '^TestCompactionAsTheModel$$' ./broker/partition

sim-nightly: ## 100,000 seeds of each
	SIM_SEEDS=100000 $(REPORT) sim-partition -count=1 -timeout 0 ./test/sim/partition
	SIM_SEEDS=100000 $(REPORT) sim-gateway -count=1 -timeout 0 ./test/sim/gateway
	SIM_SEEDS=100000 $(REPORT) sim-compaction -count=1 -timeout 0 -run '^TestCompactionAsTheModel$$' ./broker/partition

hostile: ## bad clients against the real process, alone: it measures time
	go vet -tags hostile ./test/hostile
	$(REPORT) hostile -tags hostile -count=1 -timeout 10m ./test/hostile

scale: ## 2,000,000 messages in one partition, 1,000 partitions: times and memory
	STREAM_SCALE=full go test -v -count=1 -timeout 20m ./test/scale

# Go below 1.27 may end a clean run with "context deadline exceeded" (golang/go
# #75804): only a run that has found something names a failing input or panics.
fuzz: ## every fuzz target for FUZZTIME
	@set -e; mkdir -p .cache; for f in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | grep -v '^./test/e2e/'); do \
		for name in $$(grep -oE '^func Fuzz[A-Za-z0-9_]+' $$f | cut -c6-); do \
			echo "fuzz $$name in $$(dirname $$f)"; \
			go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -timeout 0 ./$$(dirname $$f) >.cache/fuzz 2>&1 || \
				{ grep -qx '    context deadline exceeded' .cache/fuzz && ! grep -qE 'Failing input|panic|fatal error' .cache/fuzz; } || \
				{ cat .cache/fuzz; exit 1; }; \
			grep -E '^fuzz: ' .cache/fuzz | tail -n 1; \
		done; \
	done

bench: ## every benchmark once
	go test -run '^$$' -bench . -benchtime 1x ./...

bench-gateways: ## several gateways that append to the same partitions, alone on the machine: ratios and waits
	STREAM_WRITERS=full go test -v -count=1 -timeout 20m ./test/writers

bench-kafka: setup ## side by side with Apache Kafka, three minutes (MODE=long: an hour; MODE=compaction: the cleaners, eight minutes)
	go run ./test/bench -mode $(or $(MODE),short)

# govulncheck ends with 3 if it has found something (go run says so in its last
# line); anything else is about its database, which not every machine reaches.
vuln: ## known holes in what we use
	@mkdir -p .cache; if go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./... >.cache/vuln 2>&1; then \
		echo "govulncheck: nothing found"; \
	elif tail -n 1 .cache/vuln | grep -q '^exit status 3$$'; then \
		cat .cache/vuln; exit 1; \
	else \
		echo "govulncheck: not checked: its database or the tool cannot be had here; .cache/vuln has the reason"; \
	fi

deploy: ## Dockerfile and manifests: image assembled and run, cluster of the manifests
	$(REPORT) -dir test/deploy deploy -count=1 ./...

faults: ## the store slow, full, gone, restarted, lagging, under the real process
	cd test/faults && go vet ./...
	$(REPORT) -dir test/faults -progress 2 faults -count=1 -parallel 5 -timeout 10m ./...

cluster: ## several real gateways: killed and frozen at every point, and short chaos on one NATS server and three
	cd test/cluster && go vet ./...
	$(REPORT) -dir test/cluster -progress 2 cluster -count=1 -parallel 4 -timeout 10m ./...

chaos: ## faults from a seed, alone on the machine: SEED=1 MINUTES=30 REPLICAS=1|3 MODE=shared|per-gateway GATEWAYS=3
	cd test/cluster && CHAOS_SEED=$(or $(SEED),1) CHAOS_MINUTES=$(or $(MINUTES),30) CHAOS_REPLICAS=$(or $(REPLICAS),1) \
		CHAOS_MODE=$(or $(MODE),shared) CHAOS_GATEWAYS=$(or $(GATEWAYS),3) go test -v -count=1 -timeout 0 -run '^TestChaos$$' .

e2e: setup $(addprefix e2e-,$(E2E)) ## real clients, one suite after another

# One suite alone: make e2e-cli, make e2e-kill BROKERS=nats-2.10.29
$(addprefix e2e-,$(E2E)): e2e-%:
	$(REPORT) -dir test/e2e -skips $(if $(filter true,$(CI)),fail,list) -progress 3 $* -count=1 -timeout 15m ./$*

record: setup ## what Apache Kafka answers, which suites compare with: writes the recorded files anew
	cd test/e2e && STREAM_RECORD=1 STREAM_E2E_BROKERS=kafka go test -p 1 -count=1 -timeout 15m ./keys ./txn
	STREAM_RECORD=1 COMPACT_SEEDS=100 go test -count=1 -timeout 15m -run '^TestKafkaCleaner$$' ./broker/compact
	$(MAKE) golden-record

golden-record: setup ## what Kafka's command line tools print on Apache Kafka, into test/e2e/golden/testdata
	cd test/e2e && STREAM_RECORD=1 STREAM_E2E_BROKERS=kafka go test -count=1 -timeout 15m ./golden

nightly: setup ## what is too long for CI: records anew, every client on every kind of broker, whole foreign suites, 10 minutes of fuzzing per target
	$(MAKE) record record-suites
	$(MAKE) e2e-golden e2e-webui e2e-clients BROKERS=kafka
	STREAM_E2E_FULL=true $(MAKE) e2e-clients e2e-streams
	STREAM_SUITES=whole $(MAKE) e2e-suites
	STREAM_TXN=whole $(MAKE) e2e-txn
	STREAM_CONNECT=whole $(MAKE) e2e-connect
	$(MAKE) e2e-txn BROKERS=kafka
	$(MAKE) fuzz FUZZTIME=10m
	$(MAKE) sim-nightly
	COMPACT_SEEDS=20000 $(REPORT) compact -count=1 -timeout 0 -run '^TestModel$$' ./broker/compact
	SIM_LIFE=full $(REPORT) life -count=1 -timeout 15m ./broker
	STREAM_FREEZE=full $(REPORT) -dir test/cluster frozen -count=1 -parallel 2 -timeout 20m -run '^TestFrozen' ./...

docs-clients: setup ## docs/clients.md, from a run of all clients
	STREAM_E2E_BROKERS=embedded STREAM_E2E_WRITE=true $(REPORT) -dir test/e2e -progress 4 clients -count=1 -timeout 15m ./clients

compaction: ## a topic that is compacted all the time, read from its start, under 30 kills
	STREAM_COMPACTION=full $(REPORT) -dir test/faults compaction -count=1 -timeout 20m -run '^TestCompactionUnderKills$$' ./...

retention: ## retention of 1 GB per topic, 100 MB kept
	STREAM_RETENTION=full $(REPORT) -dir test/faults retention -count=1 -timeout 20m -run '^TestRetention$$' ./...

# Alone on the machine: a test that passes in some of the runs is called flaky.
record-suites: setup ## what foreign suites do on Apache Kafka, into test/e2e/suites/testdata; SUITES=sarama RUNS=3: one alone
	cd test/e2e && STREAM_SUITES_RECORD=$(RUNS) go test -v -count=1 -timeout 90m -run '^TestSuites$$/^($(SUITES))$$' ./suites

test: ## all: unit tests under the race detector, NATS versions, faults, real clients; totals at the end
	@rm -rf .cache/report
	@ok=0; for step in setup fmt vet race contract sim deploy faults cluster hostile e2e; do \
		echo "== make $$step"; $(MAKE) --no-print-directory -k $$step || ok=1; \
	done; \
	echo "== totals"; $(REPORT) -total || ok=1; exit $$ok

clean:
	rm -rf bin .cache/bin .cache/report
