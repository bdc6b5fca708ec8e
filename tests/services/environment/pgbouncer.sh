#!/usr/bin/env bash
# PgBouncer in transaction mode in front of the PostgreSQL of the same folder: configuration, start command and probe. Sourced by service.sh, in the
# service's folder.
# shellcheck disable=SC2034,SC2154 # shared with service.sh

stop_signal=TERM # closes all connections; INT would wait for the clients
drop_signal=TERM
port_taken='Address already in use'

make_data() {
  [ -s ../postgres/port ] || die "pgbouncer needs the PostgreSQL of its folder"
}

# Few idle connections of each database, because each test has a database of its own, and the server has 300 connections.
configuration() {
  cat <<END
[databases]
* = host=127.0.0.1 port=$(cat ../postgres/port) user=posthaste
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $(cat port)
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
server_idle_timeout = 5
server_login_retry = 1
max_client_conn = 2000
END
}

# PgBouncer refuses to run as root, as PostgreSQL does.
start_command() {
  configuration >pgbouncer.ini
  command=(as_postgres_owner pgbouncer "$PWD/pgbouncer.ini")
}

answers() {
  "$(postgres_programs)/pg_isready" -q -h 127.0.0.1 -p "$1" -U posthaste -d postgres -t 2
}

clear_outside() { :; }
