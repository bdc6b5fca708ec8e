#!/usr/bin/env bash
# Ports: finds a free one, and checks which process listens. Sourced, not executed.

# Prints the lines of the kernel's tables with this local port.
port_lines() {
  awk -v port="$(printf ':%04X' "$1")" 'substr($2, length($2) - 4) == port' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Prints an unused port below the range for outgoing connections: none of them may take the port while a test has killed its
# service. Another run may bind it first, so the caller must be ready to choose again.
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

# Succeeds when this process listens on this port: an open port may belong to another run.
listens() {
  local pid=$1 inode
  for inode in $(port_lines "$2" | awk '$4 == "0A" { print $10 }'); do
    # find instead of ls, which fails when a descriptor is closed while it lists the folder.
    [ -z "$(find "/proc/$pid/fd" -lname "socket:\[$inode\]" -print -quit 2>/dev/null)" ] || return 0
  done
  return 1
}
