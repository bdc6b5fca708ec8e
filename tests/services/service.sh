#!/usr/bin/env bash
# Controls one temporary service: service.sh VERB postgres|pgbouncer|redis|kafka FOLDER, where FOLDER is POSTHASTE_TEST_SERVICES.
#   start   on its previous data and port; returns when it responds       stop    gracefully
#   kill    SIGKILL, also its children                                    pause   SIGSTOP: connections stay open
#   resume  after a pause                                                 status  running, silent (exit 1) or stopped (3)
#   create  a new one, on a free port (up.sh)                             drop    stop as fast as possible (down.sh)
# With POSTHASTE_STANDBY_OF=PORT, create makes a PostgreSQL that is a standby of the server on that port; with
# POSTHASTE_KAFKA_MEMBER_OF=PORT, a Kafka broker of the cluster whose controller listens on that port.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment/common.sh"
# shellcheck source-path=SCRIPTDIR source=environment/ports.sh
. "$here/ports.sh"
usage() { die "usage: service.sh start|stop|kill|pause|resume|status postgres|pgbouncer|redis|kafka FOLDER"; }
[ $# = 3 ] || usage
verb=$1 service=$2
case $service in postgres | pgbouncer | redis | kafka) ;; *) usage ;; esac
require_folder "$3"
[ "$verb" != create ] || mkdir "$3/$service"
cd "$3/$service" 2>/dev/null || die "$service does not belong to $3"
# shellcheck source-path=SCRIPTDIR source=environment/postgres.sh
. "$here/postgres.sh" # pgbouncer.sh uses its programs
# shellcheck source=/dev/null
. "$here/$service.sh"

# Longest start, in tenths of a second: other work may use the processors.
START_MAX=900
# Longest graceful stop; then the service is killed.
STOP_MAX=300
# Longest end of a killed process: it waits for a flush to the disk that has begun.
END_MAX=600
# Number of ports to try: another process may bind one after it was found free.
PORTS_MAX=5

running_pid() {
  local pid start
  { read -r pid start <process; } 2>/dev/null || return 1
  [ "$(started_at "$pid")" = "$start" ] && printf '%s\n' "$pid"
}
has_ended() { ! running_pid >/dev/null; }

# Prints the ids of the service and its children: PostgreSQL has one for each connection, each in a session of its own.
tree() {
  local folder fields
  printf '%s\n' "$1"
  for folder in /proc/[0-9]*; do
    read_process "${folder#/proc/}" && [ "${fields[1]}" = "$1" ] && printf '%s\n' "${folder#/proc/}"
  done
  return 0
}

# The id is written before the process leaves this group: a signal to the group either ends it, or its id is in the file.
launch() {
  local command
  start_command
  (
    self=$BASHPID
    printf '%s %s\n' "$self" "$(started_at "$self")" >process.new
    mv process.new process
    in_place "${command[@]}"
  ) </dev/null >>log 2>&1 &
}

# Replaces the shell by the command, also through as_postgres_owner.
in_place() {
  if [ "$1" = as_postgres_owner ]; then
    shift
    local owner
    owner=$(postgres_owner)
    [ "$(id -u)" != 0 ] || set -- setpriv --reuid "$owner" --regid "$(id -g "$owner")" --init-groups -- "$@"
  fi
  exec setsid "$@"
}

ready() {
  local pid
  pid=$(running_pid) && listens "$pid" "$(cat port)" && answers "$(cat port)"
}

ready_or_ended() { has_ended || ready; }

# The file appears a moment after the launch.
await_ready() {
  until_true 600 test -s process && until_true "$START_MAX" ready_or_ended && ready
}

fail_with_log() {
  say "$1; the last lines of its log:"
  tail -n 20 log >&2
  exit 1
}

create() {
  # In the background, because bash ignores failures inside a command before ||.
  make_data &
  wait "$!" || fail_with_log "$service could not be created"
  local tries
  for ((tries = 1; tries <= PORTS_MAX; tries++)); do
    free_port >port
    rm -f process
    launch
    ! await_ready || return 0
    finish KILL
    grep -qE "$port_taken" log || break
    : >log
  done
  fail_with_log "$service did not start"
}

start() {
  ! running_pid >/dev/null || die "$service runs already"
  rm -f process
  launch
  await_ready || fail_with_log "$service did not start again"
}

# Ends the service with a signal, and with KILL when it does not end in time.
finish() {
  local pid all
  pid=$(running_pid) || return 0
  if [ "$1" != KILL ]; then
    kill -s "$1" "$pid" 2>/dev/null || true
    mapfile -t all < <(tree "$pid")
    kill -s CONT "${all[@]}" 2>/dev/null || true # a stopped process handles no signal
    ! until_true "$STOP_MAX" has_ended || return 0
  fi
  # Stopped first, so that no child starts during the search.
  kill -s STOP "$pid" 2>/dev/null || true
  mapfile -t all < <(tree "$pid")
  kill -s KILL "${all[@]}" 2>/dev/null || true
  local pid
  for pid in "${all[@]}"; do
    until_true "$END_MAX" process_ended "$pid" || die "$service: process $pid does not end"
  done
}
process_ended() { ! started_at "$1" >/dev/null; }

signal_tree() {
  local pid all
  pid=$(running_pid) || die "$service does not run"
  mapfile -t all < <(tree "$pid")
  kill -s "$1" "${all[@]}" 2>/dev/null || true
}

case $verb in
  create) create ;;
  start) start ;;
  stop) finish "$stop_signal" ;;
  kill) finish KILL ;;
  drop)
    finish "$drop_signal"
    clear_outside
    ;;
  pause) signal_tree STOP ;;
  resume) signal_tree CONT ;;
  status)
    has_ended && echo stopped && exit 3
    ready || { echo silent && exit 1; }
    echo running
    ;;
  *) usage ;;
esac
