#!/usr/bin/env bash
# Runs a command beside real PostgreSQL, Redis and Apache Kafka: with.sh COMMAND…
# Installs what is missing, starts throwaway instances on free ports, tells the command where they are (POSTHASTE_TEST_*),
# ends with its exit code, and leaves nothing: not when it fails, not after Ctrl-C, not after kill -9 of this script.
# What POSTHASTE_TEST_POSTGRES, _REDIS or _KAFKA already name is used as it is.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
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
# The first signal goes to the command, the second ends it.
pass_on() {
  if [ -n "$signalled" ]; then
    [ -z "$job" ] || kill -s KILL -- "-$job" 2>/dev/null || true
    return
  fi
  signalled=$1
  SECONDS=0
  [ -z "$job" ] || kill -s "$1" -- "-$job" 2>/dev/null || true
}

# Runs a command in a process group of its own, so that all of it can be reached; its exit code in `code`. In the
# background, because bash hears no signal while it waits for the foreground.
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
  # Children that it left behind.
  kill -s KILL -- "-$job" 2>/dev/null || true
  job=
  rm -f "$folder/group"
}

# shellcheck disable=SC2317
clear_up() {
  trap '' INT TERM HUP
  [ -z "$folder" ] || "$here/down.sh" "$folder"
  [ -z "$guard" ] || kill -s KILL "$guard" 2>/dev/null || true
}

# A function, so that bash has read all of it: somebody may edit this file while a long run uses it.
main() {
  "$here/install.sh" "${missing[@]}"
  trap clear_up EXIT
  trap 'pass_on INT' INT
  trap 'pass_on TERM' TERM
  trap 'pass_on HUP' HUP
  folder=$(new_folder)
  setsid "$here/guard.sh" "$folder" $$ </dev/null >/dev/null 2>&1 &
  guard=$!
  disown "$guard"

  run "$here/up.sh" "$folder" "${missing[@]}"
  [ -z "$signalled" ] || exit $((128 + $(kill -l "$signalled")))
  [ "$code" = 0 ] || die "the services could not be started"
  # shellcheck disable=SC1091
  . "$folder/env"
  run "$@"
  exit "$code"
}
main "$@"
