#!/usr/bin/env bash
# One throwaway service: service.sh VERB postgres|redis|kafka FOLDER, where FOLDER is POSTHASTE_TEST_SERVICES.
#   start   on the data and the port it had; returns when it answers      stop    in order
#   kill    -9, it and all its children                                   pause   SIGSTOP: connected, and silent
#   resume  after a pause                                                 status  running, silent (exit 1) or stopped (3)
#   create  a new one, on a free port (up.sh)                             drop    as fast as can be (down.sh)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source-path=SCRIPTDIR source=ports.sh
. "$here/ports.sh"
usage() { die "usage: service.sh start|stop|kill|pause|resume|status postgres|redis|kafka FOLDER"; }
[ $# = 3 ] || usage
verb=$1 service=$2
case $service in postgres | redis | kafka) ;; *) usage ;; esac
require_folder "$3"
[ "$verb" != create ] || mkdir "$3/$service"
cd "$3/$service" 2>/dev/null || die "$service does not belong to $3"
# shellcheck source-path=SCRIPTDIR source=postgres.sh
. "$here/$service.sh"

# Longest start, in tenths of a second: other work may have the machine's cores.
START_MAX=900
# Longest stop in order; then it is killed.
STOP_MAX=300
# Ports that are tried: another run, or anyone, may bind one after it was found free.
PORTS_MAX=5

living() {
  local pid start
  { read -r pid start <process; } 2>/dev/null || return 1
  [ "$(started_at "$pid")" = "$start" ] && printf '%s\n' "$pid"
}
gone() { ! living >/dev/null; }

# The service and its children: PostgreSQL has one for each connection, and puts each into a session of its own.
tree() {
  local folder fields
  printf '%s\n' "$1"
  for folder in /proc/[0-9]*; do
    read_process "${folder#/proc/}" && [ "${fields[1]}" = "$1" ] && printf '%s\n' "${folder#/proc/}"
  done
  return 0
}

# The id is written before the process leaves our group: whoever ends the group either ends it or finds it in the file.
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

# exec, also through as_postgres_owner.
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
  pid=$(living) && listens "$pid" "$(cat port)" && answers "$(cat port)"
}

ready_or_dead() { gone || ready; }

# A process that was just launched has no file yet for the blink of an eye.
await_ready() {
  until_true 50 test -s process && until_true "$START_MAX" ready_or_dead && ready
}

complain() {
  say "$1; the end of its log:"
  tail -n 20 log >&2
  exit 1
}

create() {
  # In the background, because bash ignores failures inside whatever stands before ||.
  make_data &
  wait "$!" || complain "$service could not be made"
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
  complain "$service did not start"
}

start() {
  ! living >/dev/null || die "$service runs already"
  rm -f process
  launch
  await_ready || complain "$service did not start again"
}

# Ends it with a signal, and with KILL where that does not help.
finish() {
  local pid all
  pid=$(living) || return 0
  if [ "$1" != KILL ]; then
    kill -s "$1" "$pid" 2>/dev/null || true
    mapfile -t all < <(tree "$pid")
    kill -s CONT "${all[@]}" 2>/dev/null || true # a paused one would never hear it
    ! until_true "$STOP_MAX" gone || return 0
  fi
  # Stopped first, so that no child is born while we look for them.
  kill -s STOP "$pid" 2>/dev/null || true
  mapfile -t all < <(tree "$pid")
  kill -s KILL "${all[@]}" 2>/dev/null || true
  local each
  for each in "${all[@]}"; do
    until_true 100 process_ended "$each" || die "$service: process $each does not end"
  done
}
process_ended() { ! started_at "$1" >/dev/null; }

to_tree() {
  local pid all
  pid=$(living) || die "$service does not run"
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
  pause) to_tree STOP ;;
  resume) to_tree CONT ;;
  status)
    gone && echo stopped && exit 3
    ready || { echo silent && exit 1; }
    echo running
    ;;
  *) usage ;;
esac
