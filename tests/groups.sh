#!/usr/bin/env bash
# Runs all tests in two groups at the same time, each with services of its own: many tests wait for leases and time-outs, and leave the processor
# to the other group. The test programs must be built: `make test` does it. Services that POSTHASTE_TEST_POSTGRES, _REDIS or _KAFKA name are
# shared, so that the groups run one after the other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The tests of the whole program on real services take as long as all others together.
long=(redis services)

# Arguments that select every test target but the long ones: a new target is in the first group.
others() {
  local name
  cargo metadata --no-deps --offline --format-version 1 \
    | grep -o '"kind":\["test"\],"crate_types":\["bin"\],"name":"[^"]*"' | sed 's/.*:"//; s/"$//' | sort -u \
    | while read -r name; do
      [[ " ${long[*]} " == *" $name "* ]] || printf -- '--test\n%s\n' "$name"
    done
}

# Starts a group in the background, with its name before each line: start NAME ARGUMENT_OF_CARGO…
processes=()
outputs=()
records=$(mktemp -d)
trap 'rm -rf "$records"' EXIT
start() {
  local name=$1 lines
  shift
  exec {lines}> >(tee "$records/$name" | sed -u "s/^/$name | /")
  outputs+=($!)
  tests/services/with.sh cargo test --workspace --no-fail-fast "$@" >&"$lines" 2>&1 &
  processes+=($!)
  exec {lines}>&-
}

# Waits for the groups that were started; fails if one has failed.
finish() {
  local failed=0 process
  for process in "${processes[@]}"; do wait "$process" || failed=1; done
  for process in "${outputs[@]}"; do wait "$process" || true; done
  processes=()
  outputs=()
  return "$failed"
}

# Prints the failed tests once more, with the messages of their panics: the output of the other group can hide them, and a log may keep only its end.
report() {
  echo "failed tests:"
  awk '
    function name() { group = FILENAME; sub(/.*\//, "", group); return group " | " }
    /^---- .* stdout ----$/ { failed = 1; print name() $0; next }
    /^failures:$/ { failed = 0 }
    failed && / panicked at / { message = 4 }
    /^stack backtrace:$/ { message = 0 }
    failed && message > 0 { message--; print name() "  " $0 }
    failed && /^Error: / || /^error: test failed|^error: could not compile|^Caused by:|process didn.t exit successfully/ { print name() $0 }
  ' "$records"/*
}

# shellcheck disable=SC2317 # the trap calls it
# A background process ignores SIGINT: with.sh gets the signal that it handles.
stop() {
  trap '' INT TERM HUP
  kill -s TERM "${processes[@]}" 2>/dev/null || true
  finish || true
  exit 130
}

mapfile -t arguments < <(others)
[ ${#arguments[@]} -gt 0 ] || { echo "cargo metadata lists no test targets" >&2; exit 1; }
trap stop INT TERM HUP
failed=0
start others --lib --bins --examples --benches "${arguments[@]}"
if [ -n "${POSTHASTE_TEST_POSTGRES:-}${POSTHASTE_TEST_REDIS:-}${POSTHASTE_TEST_KAFKA:-}" ]; then finish || failed=1; fi
start long "${long[@]/#/--test=}"
finish || failed=1
[ "$failed" = 0 ] || report
exit "$failed"
