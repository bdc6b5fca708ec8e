#!/usr/bin/env bash
# Redis: data, start command and probe. Sourced by service.sh, in the service's folder.
# shellcheck disable=SC2034,SC2154 # shared with service.sh

stop_signal=TERM
drop_signal=KILL
port_taken='bind: Address already in use|Failed listening on port'

make_data() {
  mkdir data
}

# A store, not only a cache: no key is evicted, and acknowledged writes are in the file after kill -9.
start_command() {
  command=(redis-server --port "$(cat port)" --bind 127.0.0.1 --dir "$PWD/data" --daemonize no --appendonly yes --save ''
    --maxmemory-policy noeviction --loglevel notice)
}

answers() {
  [ "$(timeout 2 redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null)" = PONG ]
}

clear_outside() { :; }
