#!/usr/bin/env bash
# PostgreSQL: data, start command and probe. Sourced by service.sh, in the service's folder.
# shellcheck disable=SC2034,SC2154 # shared with service.sh

stop_signal=INT # fast shutdown: rolls back open transactions, writes a checkpoint
drop_signal=QUIT # immediate shutdown, which frees the shared memory
port_taken='could not bind|could not create any TCP/IP sockets'

# Debian keeps the programs of each version in a folder of its own, outside PATH.
postgres_programs() {
  local initdb
  for initdb in $(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -rV) "$(command -v initdb)"; do
    [ -x "$initdb" ] || continue
    dirname "$initdb"
    return
  done
  return 1
}

make_data() {
  local owner
  owner=$(postgres_owner)
  mkdir data && chmod 700 data
  [ "$(id -u)" != 0 ] || chown "$owner" data
  if [ -n "${POSTHASTE_STANDBY_OF:-}" ]; then
    # An asynchronous standby of the server on this port, which it keeps as the address of its primary.
    as_postgres_owner "$(postgres_programs)/pg_basebackup" -D "$PWD/data" -h 127.0.0.1 -p "$POSTHASTE_STANDBY_OF" \
      -U posthaste --checkpoint=fast --write-recovery-conf --no-sync >>log 2>&1
    return
  fi
  as_postgres_owner env LC_ALL=C "$(postgres_programs)/initdb" -D "$PWD/data" -A trust -U posthaste -E UTF8 \
    --locale=C --no-sync --no-instructions >>log 2>&1
}

# fsync keeps its default, on: a test turns it off with ALTER SYSTEM. 300 connections: several instances of the service, each with its pool, and the tests. Shared memory is in files of the
# data folder, so that nothing remains in /dev/shm after kill -9.
start_command() {
  # Remains after kill -9, and blocks a start while the killed process is not reaped. service.sh knows that it has ended.
  rm -f data/postmaster.pid
  command=(as_postgres_owner env LC_ALL=C "$(postgres_programs)/postgres" -D "$PWD/data" -p "$(cat port)"
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=300
    -c dynamic_shared_memory_type=mmap)
}

answers() {
  "$(postgres_programs)/pg_isready" -q -h 127.0.0.1 -p "$1" -U posthaste -d postgres -t 2
}

# The only resource that kill -9 leaves outside the folder: a segment of System V memory, named in line 7 of the pid file.
clear_outside() {
  local segment
  segment=$(sed -n '7s/.* //p' data/postmaster.pid 2>/dev/null) || return 0
  [ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null || true
}
