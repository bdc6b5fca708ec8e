#!/usr/bin/env bash
# Installs what the named services (postgres, redis, kafka; all by default) lack here. Says and does nothing when all is there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source-path=SCRIPTDIR source=java.sh
. "$here/java.sh"
# shellcheck source-path=SCRIPTDIR source=postgres.sh
. "$here/postgres.sh"
[ $# -gt 0 ] || set -- postgres redis kafka

files_cached() {
  [ -f "$(cache_folder)/kafka-$kafka_version/complete" ]
}

# Ends well, with all there.
finish() {
  case " $* " in *' kafka '*) "$here/kafka_files.sh" >/dev/null ;; esac
  exit 0
}

# One lacking thing a line: postgres, redis, java, mvn.
lacking() {
  local service
  for service in "$@"; do
    case $service in
      postgres) postgres_programs >/dev/null || echo postgres ;;
      redis) command -v redis-server >/dev/null && command -v redis-cli >/dev/null || echo redis ;;
      kafka)
        java_program >/dev/null || echo java
        files_cached || command -v mvn >/dev/null || echo mvn
        ;;
      *) die "unknown service: $service" ;;
    esac
  done
}

# Newer releases do not carry version 17 any more; their default is later.
java_package() {
  if [ -n "$(apt-cache search --names-only '^openjdk-17-jre-headless$')" ]; then
    echo openjdk-17-jre-headless
  else
    echo default-jre-headless
  fi
}

packages() {
  local thing
  for thing in $1; do
    case $thing in
      postgres) echo postgresql ;;
      redis) echo redis-server ;;
      java) java_package ;;
      mvn) echo maven ;;
    esac
  done
}

# Runs a command with the rights to install, quietly; its last lines when it fails.
as_root() {
  local log
  log=$(mktemp)
  if "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1; then
    rm -f "$log"
    return
  fi
  tail -n 20 "$log" >&2
  rm -f "$log"
  die "failed: $*"
}

what=$(lacking "$@")
[ -n "$what" ] || finish "$@"
by_hand="please install $(tr '\n' ' ' <<<"$what")yourself (on Debian: postgresql, redis-server, openjdk-17-jre-headless, maven)"
command -v apt-get >/dev/null || die "there is no apt-get here: $by_hand"
root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || die "neither root nor sudo: $by_hand"
  # Without a terminal nobody can type the password.
  sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } || die "sudo wants a password: $by_hand"
  root=(sudo)
fi
# One run installs, the others wait and find it done.
mkdir -p "$(cache_folder)"
exec 9>"$(cache_folder)/install.lock"
flock 9
what=$(lacking "$@")
[ -n "$what" ] || finish "$@"
say "installing with apt-get: $(tr '\n' ' ' <<<"$what")"
[ ! -d /run/systemd/system ] || say "systemd may start Debian's own PostgreSQL and Redis with them; the tests leave those alone"
as_root apt-get update -qq 9>&-
mapfile -t names < <(packages "$what")
as_root apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${names[@]}" 9>&-
what=$(lacking "$@")
[ -z "$what" ] || die "installed, and still not found: $what"
finish "$@"
