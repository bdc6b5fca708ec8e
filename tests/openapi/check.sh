#!/usr/bin/env bash
# Sends generated requests to the program and compares its responses with its OpenAPI document, in both directions: what the document
# allows is accepted, what it forbids is refused, and every response has its schema. Builds the program and installs the generator
# (schemathesis) into the cache folder. POSTHASTE_SEED=n for other requests, POSTHASTE_EXAMPLES=n for more of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source-path=SCRIPTDIR source=../services/environment/common.sh
. tests/services/environment/common.sh

# shellcheck source-path=SCRIPTDIR source=../services/environment/python.sh
. "$here/python.sh"
# shellcheck source-path=SCRIPTDIR source=../services/environment/ports.sh
. "$here/ports.sh"

generator=$(python_environment schemathesis tests/openapi/requirements.txt)

# The program as the tests build it: `cargo build` leaves out the features of their dependencies, and compiles a third of all crates again.
cargo test --quiet --workspace --test service --no-run
target=$(cargo metadata --no-deps --offline --format-version 1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
config=$PWD/tests/openapi/schemathesis.toml
folder=$(mktemp -d)
service=
# shellcheck disable=SC2317 # the trap calls it
stop() {
  [ -z "$service" ] || { kill "$service" 2>/dev/null && wait "$service" 2>/dev/null; } || true
  rm -rf "$folder"
}
trap stop EXIT

port=$(free_port)
unset POSTHASTE__AUTH__HS256_SECRET
export POSTHASTE__STORE__PATH=$folder/data POSTHASTE__HTTP__LISTEN=127.0.0.1:$port POSTHASTE__RATE_LIMIT__ENABLED=false
# A read may wait so long for a record.
export POSTHASTE__READ__WAIT_MAX=1s
# A busy machine delays a request or a commit for longer than the defaults, and the responses 408, 500 and 503 are failures here. The generator waits
# longer than the service.
export POSTHASTE__HTTP__REQUEST_TIMEOUT=20s POSTHASTE__HTTP__HEADER_TIMEOUT=60s POSTHASTE__HTTP__BODY_TIMEOUT=60s
"$target/debug/posthaste" serve --dev >"$folder/log" 2>&1 &
service=$!
token=$("$target/debug/posthaste" token mint --sub root --role ADMIN 2>/dev/null)

# A stream has no end; injected faults would fail other requests.
cd "$folder"
"$generator/bin/schemathesis" --config-file "$config" run "http://127.0.0.1:$port/openapi.json" --wait-for-schema 300 --request-timeout 90 \
  --header "Authorization: Bearer $token" --exclude-path /admin/events --exclude-path '/admin/actors/{path}/{action}' \
  --checks all --max-examples "${POSTHASTE_EXAMPLES:-25}" --seed "${POSTHASTE_SEED:-1}" --continue-on-failure \
  --suppress-health-check all --no-color >"$folder/report" 2>&1 || {
  cat "$folder/report" >&2
  die "the program and its OpenAPI document differ"
}
grep -E '^  [0-9]+ generated' "$folder/report" || true
