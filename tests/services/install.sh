#!/usr/bin/env bash
# Installs missing packages for the named parts of the tests (postgres with pgbouncer, redis, kafka, chromium, openssl; all by default). Prints nothing when none is missing.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment/common.sh"
# shellcheck source-path=SCRIPTDIR source=environment/java.sh
. "$here/java.sh"
# shellcheck source-path=SCRIPTDIR source=environment/postgres.sh
. "$here/postgres.sh"
[ $# -gt 0 ] || set -- postgres redis kafka chromium openssl

files_cached() {
  [ -f "$(cache_folder)/kafka-$kafka_version/complete" ]
}

# Fetches the files of Kafka if needed, then exits with 0.
finish() {
  case " $* " in *' kafka '*) "$here/kafka_files.sh" >/dev/null ;; esac
  exit 0
}

# The browsers that tests/service/browser uses.
browser_programs() {
  command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable
}

# Prints what is missing, one a line: postgres, pgbouncer, redis, java, mvn, chromium, openssl.
missing_programs() {
  local service
  for service in "$@"; do
    case $service in
      postgres)
        postgres_programs >/dev/null || echo postgres
        command -v pgbouncer >/dev/null || echo pgbouncer
        ;;
      redis) command -v redis-server >/dev/null && command -v redis-cli >/dev/null || echo redis ;;
      kafka)
        java_program >/dev/null || echo java
        files_cached || command -v mvn >/dev/null || echo mvn
        ;;
      chromium) browser_programs >/dev/null || echo chromium ;;
      openssl) pkg-config --exists openssl 2>/dev/null || echo openssl ;;
      *) die "unknown service: $service" ;;
    esac
  done
}

# Newer releases of Debian have no version 17; their default is later.
java_package() {
  if [ -n "$(apt-cache search --names-only '^openjdk-17-jre-headless$')" ]; then
    echo openjdk-17-jre-headless
  else
    echo default-jre-headless
  fi
}

packages() {
  local program
  for program in $1; do
    case $program in
      postgres) echo postgresql ;;
      pgbouncer) echo pgbouncer ;;
      redis) echo redis-server ;;
      java) java_package ;;
      mvn) echo maven ;;
      chromium) echo chromium ;;
      openssl) printf '%s\n' pkg-config libssl-dev ;;
    esac
  done
}

# Runs a command with the rights to install. Prints the last lines of its output when it fails.
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

missing=$(missing_programs "$@")
[ -n "$missing" ] || finish "$@"
by_hand="please install $(tr '\n' ' ' <<<"$missing")yourself (on Debian: postgresql, pgbouncer, redis-server, openjdk-17-jre-headless, maven, chromium, pkg-config, libssl-dev)"
command -v apt-get >/dev/null || die "apt-get is not available: $by_hand"
root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || die "not root, and sudo is not available: $by_hand"
  # Without a terminal there is no way to enter the password.
  sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } || die "sudo needs a password: $by_hand"
  root=(sudo)
fi
# One run installs; concurrent runs wait for it.
mkdir -p "$(cache_folder)"
exec 9>"$(cache_folder)/install.lock"
flock 9
missing=$(missing_programs "$@")
[ -n "$missing" ] || finish "$@"
say "installing with apt-get: $(tr '\n' ' ' <<<"$missing")"
[ ! -d /run/systemd/system ] || say "systemd may start Debian's PostgreSQL, PgBouncer and Redis with them; the tests do not use those"
as_root apt-get update -qq 9>&-
mapfile -t names < <(packages "$missing")
as_root apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${names[@]}" 9>&-
missing=$(missing_programs "$@")
[ -z "$missing" ] || die "installed, and still not found: $missing"
finish "$@"
