# `make run` starts a demo, `make test` installs and starts what the tests need, `make check` is what CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export CARGO_BUILD_JOBS ?= 2
# A shared machine that also compiles is slow at times: this factor multiplies the deadlines of the tests.
test faults: export POSTHASTE_TEST_TIMEOUT_FACTOR ?= 5
# The tests of the operator page are skipped without a browser; `make test` installs one, or fails.
test: export POSTHASTE_REQUIRE_CHROMIUM ?= 1

.PHONY: run install test services check fmt clippy docs api dependencies manifests tidy openapi packages bench kills faults seeds

run: ## The demo: builds the embedded variant, starts it, places orders, prints each step, and runs until Ctrl-C.
	cargo run --profile demo --no-default-features -- demo

PREFIX ?= /usr/local
install: ## Builds a release and installs program, manual pages, completions, documents and systemd unit: make install PREFIX=$HOME/.local
	POSTHASTE_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null || true) cargo build --release --locked --bin posthaste
	docker/package/install.sh "$${CARGO_TARGET_DIR:-target}/release/posthaste" "$(PREFIX)"

test: ## Everything, also against real PostgreSQL, Redis and Kafka: installs what is missing, runs them on free ports, stops them.
	tests/services/install.sh
	cargo test --workspace --all-targets --no-run
	$(encrypted) --no-run
	tests/groups.sh
	tests/services/with.sh bash -c 'cargo test --workspace --doc && $(encrypted)'

# TLS and SCRAM are features of a build of their own, because OpenSSL takes long to build. Of the whole workspace: `--package` alone selects fewer
# features of the other dependencies, and compiles 66 of them again.
encrypted := cargo test --workspace --features posthaste-kafka/tls --test kafka secured

services: ## PostgreSQL, Redis and Kafka for experiments, until Ctrl-C; prints how to use them.
	@POSTHASTE_KAFKA_JIT=-XX:+TieredCompilation tests/services/with.sh tests/services/show.sh

check: fmt dependencies manifests clippy docs api packages test openapi ## The same as CI.

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy --workspace --all-targets -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

api: ## The public API of the library crates is that of tests/api. POSTHASTE_WRITE_API=1 accepts a change. Installs its tool into the cache folder.
	tests/api/check.sh

dependencies: ## Licences and sources of all dependencies, and those that no code uses. Installs both checkers into the cache folder.
	tests/tidy/dependencies.sh

manifests: ## Kubernetes manifests, the compose file and workflows match their schemas. Installs the validators into the cache folder.
	tests/tidy/operations/manifests.sh

tidy: ## Only the rules of this repository that the compiler cannot check.
	cargo test --test tidy

openapi: ## Sends requests generated from the OpenAPI document and checks the responses against it. Installs the generator into the cache folder.
	tests/openapi/check.sh

packages: ## Every crate, checked from its package as it would be published.
	tests/api/packages.sh

bench: ## Measures the service end to end, on a release build; prints its settings.
	cargo run --release --quiet -- bench

kills: ## The service under load, killed with kill -9 a set number of times: make kills POSTHASTE_KILLS=1000
	POSTHASTE_KILLS=$${POSTHASTE_KILLS:-200} cargo test --release --test service durability

faults: ## A set number of random failures of every part, on real services: make faults POSTHASTE_FAULTS=2000 (POSTHASTE_SEED=n repeats a run)
	POSTHASTE_FAULTS=$${POSTHASTE_FAULTS:-500} tests/services/with.sh cargo test --release --test services guarantees -- --nocapture

seeds: ## The actors on a simulated PostgreSQL and Kafka, until a seed fails: make seeds POSTHASTE_FIRST_SEED=1001 POSTHASTE_SEEDS=100000
	POSTHASTE_SEEDS=$${POSTHASTE_SEEDS:-0} cargo test --release --test simulation cluster::seeds::invariants_hold -- --nocapture
