#!/usr/bin/env bash
# Runs a command with real PostgreSQL, Redis and Apache Kafka: with.sh COMMAND…
# Installs missing packages, starts temporary instances on free ports, exports their addresses (POSTHASTE_TEST_*), and exits
# with the exit code of the command. It removes the instances also after a failure, Ctrl-C, or kill -9 of this script.
# A service that POSTHASTE_TEST_POSTGRES, _REDIS or _KAFKA already names is used and not started.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment/common.sh"
[ $# -gt 0 ] || die "usage: with.sh COMMAND…"

missing=()
[ -n "${POSTHASTE_TEST_POSTGRES:-}" ] || missing+=(postgres)
[ -n "${POSTHASTE_TEST_REDIS:-}" ] || missing+=(redis)
[ -n "${POSTHASTE_TEST_KAFKA:-}" ] || missing+=(kafka)
[ ${#missing[@]} -gt 0 ] || exec "$@"

# Seconds that a command has to end after a signal.
GRACE=10
signalled=
job=
folder=
guard=

# shellcheck disable=SC2317 # traps call it
# Passes the first signal on to the command; the second one kills it.
pass_on() {
  if [ -n "$signalled" ]; then
    [ -z "$job" ] || kill -s KILL -- "-$job" 2>/dev/null || true
    return
  fi
  signalled=$1
  SECONDS=0
  [ -z "$job" ] || kill -s "$1" -- "-$job" 2>/dev/null || true
}

# Runs a command in a process group of its own, so that a signal reaches all of it, and sets `code` to its exit code. In the
# background, because bash handles no signal while it waits for a foreground command.
run() {
  set -m
  (
    echo "$BASHPID" >"$folder/group"
    exec "$@"
  ) <&0 &
  job=$!
  set +m
  while started_at "$job" >/dev/null; do
    if [ -z "$signalled" ]; then
      wait "$job" || true
    elif [ "$SECONDS" -lt "$GRACE" ]; then
      sleep 0.1
    else
      kill -s KILL -- "-$job" 2>/dev/null || true
      sleep 0.1
    fi
  done
  code=0
  wait "$job" || code=$?
  # Remaining children of the command.
  kill -s KILL -- "-$job" 2>/dev/null || true
  job=
  rm -f "$folder/group"
}

# shellcheck disable=SC2317
clean_up() {
  trap '' INT TERM HUP
  # The exit code is that of the command: what is left of a service costs only memory.
  [ -z "$folder" ] || "$scripts/down.sh" "$folder" || say "the services could not be stopped cleanly"
  [ -z "$guard" ] || kill -s KILL "$guard" 2>/dev/null || true
}

# A function, so that bash reads all of it before it runs: the file may change during a long run.
main() {
  "$scripts/install.sh" "${missing[@]}"
  trap clean_up EXIT
  trap 'pass_on INT' INT
  trap 'pass_on TERM' TERM
  trap 'pass_on HUP' HUP
  folder=$(new_folder)
  setsid "$here/guard.sh" "$folder" $$ </dev/null >/dev/null 2>&1 &
  guard=$!
  disown "$guard"

  # No test kills the broker that all of them share.
  run env POSTHASTE_KAFKA_SESSION_MS=60000 "$scripts/up.sh" "$folder" "${missing[@]}"
  [ -z "$signalled" ] || exit $((128 + $(kill -l "$signalled")))
  [ "$code" = 0 ] || die "the services could not be started"
  # shellcheck disable=SC1091
  . "$folder/env"
  run "$@"
  exit "$code"
}
main "$@"
