#!/usr/bin/env bash
# Shared by all scripts: messages, the folder of a run, and process ids. Sourced, not executed.

# This folder, and the one with the scripts to run.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # used by the scripts that source this
scripts=$(dirname "$here")
# PATH of ordinary users may lack the folders of system tools on Debian.
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/sbin:/sbin
export PATH
# Marks the folder of a run: only a folder with this file is ever removed.
mark=.posthaste-services
# shellcheck disable=SC2034 # used by the scripts that source this
kafka_version=4.1.0

say() { printf 'services: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Prints the cache folder, which runs share. HOME may be unset without a login shell.
cache_folder() {
  local home=${HOME:-}
  [ -n "$home" ] || home=$(getent passwd "$(id -u)" | cut -d: -f6)
  printf '%s/posthaste\n' "${XDG_CACHE_HOME:-$home/.cache}"
}

# Reads /proc/PID/stat into the array `fields`, from the state on; the name before it may contain any character, also brackets.
read_process() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"
}

# Prints when a process was started, in ticks since boot: with its id, this identifies one process. Fails when it has ended,
# also while its parent has not reaped it: the first process of a container may never do so.
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

# Creates the folder of a run. The user that runs PostgreSQL must be able to enter it: TMPDIR may be private.
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

# Runs a command as that user in place: there is no process between this shell and the command, so its id is known.
as_postgres_owner() {
  if [ "$(id -u)" != 0 ]; then
    "$@"
  else
    local owner
    owner=$(postgres_owner)
    setpriv --reuid "$owner" --regid "$(id -g "$owner")" --init-groups -- "$@"
  fi
}
