# Two commands do all the set-up: `make run` and `make test`. `make check` is what CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export CARGO_BUILD_JOBS ?= 2

.PHONY: run test check fmt clippy docs tidy bench kills

run: ## The newcomer's first minute: starts embedded, places orders, shows every hop, stays up.
	cargo run --release --quiet -- demo

test: ## Everything that can be tested here; installs nothing outside the target folder.
	cargo test --workspace --all-targets
	cargo test --workspace --doc

check: fmt clippy docs test ## The same as CI.

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy --workspace --all-targets -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

tidy: ## Only the rules of the house.
	cargo test --test tidy

bench: ## End to end, on a release build; prints its settings.
	cargo run --release --quiet -- bench

kills: ## kill -9 for as long as you like: make kills POSTHASTE_KILLS=1000
	POSTHASTE_KILLS=$${POSTHASTE_KILLS:-200} cargo test --release --test service durability
