#!/usr/bin/env bash
# What all scripts of this folder share: messages, a run's folder, and who is alive. Sourced, not run.

# shellcheck disable=SC2034 # for those who source this
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Some shells of ordinary users do not look where Debian keeps its system tools.
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/sbin:/sbin
export PATH
# Marks a folder as one of ours: only such a folder is ever emptied.
mark=.posthaste-services
# shellcheck disable=SC2034 # for those who source this
kafka_version=4.1.0

say() { printf 'services: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Cache between runs. HOME may be unset where no shell logged in.
cache_folder() {
  local home=${HOME:-}
  [ -n "$home" ] || home=$(getent passwd "$(id -u)" | cut -d: -f6)
  printf '%s/posthaste\n' "${XDG_CACHE_HOME:-$home/.cache}"
}

# Reads /proc/PID/stat into the array `fields`, from the state on; the name before it may hold anything, brackets too.
read_process() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"
}

# When a process was started, in ticks since boot: with its id, this names one process for good. Fails when it has ended,
# also while nobody has collected it: a container's first process may never do so.
started_at() {
  local fields
  read_process "$1" && [ "${fields[0]}" != Z ] && printf '%s\n' "${fields[19]}"
}

parent_of() {
  local fields
  read_process "$1" && printf '%s\n' "${fields[1]}"
}

# Waits until a condition holds: until_true TENTHS_OF_A_SECOND COMMAND…
until_true() {
  local left=$1
  shift
  until "$@"; do
    [ "$((left -= 1))" -gt 0 ] || return 1
    sleep 0.1
  done
}

# A folder for one run, which the owner of PostgreSQL's processes must be able to enter: TMPDIR may be private.
new_folder() {
  local base folder
  for base in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
    base=$(cd "$base" 2>/dev/null && pwd) || continue
    folder=$(mktemp -d "$base/posthaste-services.XXXXXX" 2>/dev/null) || continue
    chmod 755 "$folder"
    if as_postgres_owner test -x "$folder"; then
      touch "$folder/$mark"
      printf '%s\n' "$folder"
      return
    fi
    rmdir "$folder"
  done
  die "no temporary folder can be used: tried ${TMPDIR:-/tmp}, /tmp, /var/tmp"
}

require_folder() {
  [ -f "${1:-}/$mark" ] || die "${1:-(none)} is no folder of throwaway services"
}

# PostgreSQL refuses to run as root.
postgres_owner() {
  if [ "$(id -u)" != 0 ]; then
    id -un
  elif id -u postgres >/dev/null 2>&1; then
    echo postgres
  else
    echo nobody
  fi
}

# Runs a command as that owner, in place: no process stays between us and it, so its id is the one we know.
as_postgres_owner() {
  if [ "$(id -u)" != 0 ]; then
    "$@"
  else
    local owner
    owner=$(postgres_owner)
    setpriv --reuid "$owner" --regid "$(id -g "$owner")" --init-groups -- "$@"
  fi
}
