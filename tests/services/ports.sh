#!/usr/bin/env bash
# Ports: choosing one that is free, and telling whose it is. Sourced, not run.

# Lines of the kernel's tables whose local port is this one.
port_lines() {
  awk -v port="$(printf ':%04X' "$1")" 'substr($2, length($2) - 4) == port' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# A port that nobody uses, below those that the kernel lends to outgoing connections: one of these must not sit on it
# while a test has the service killed. Another run may still be faster: who binds must be ready to choose again.
free_port() {
  local low high=32000 port
  read -r low _ </proc/sys/net/ipv4/ip_local_port_range
  [ "$low" -le 21000 ] || high=$((low - 1))
  while :; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % (high - 20000)))
    [ -n "$(port_lines "$port")" ] || break
  done
  printf '%s\n' "$port"
}

# Does this process itself listen on this port? A port that answers may be another run's.
listens() {
  local pid=$1 inode
  for inode in $(port_lines "$2" | awk '$4 == "0A" { print $10 }'); do
    # find, for ls fails when a descriptor is closed between its reading and its showing.
    [ -z "$(find "/proc/$pid/fd" -lname "socket:\[$inode\]" -print -quit 2>/dev/null)" ] || return 0
  done
  return 1
}
