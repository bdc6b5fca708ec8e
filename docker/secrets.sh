#!/usr/bin/env bash
# Creates the secrets of docker/compose.yaml once: random passwords in docker/secrets, which git ignores.
set -euo pipefail
cd "$(dirname "$0")/secrets"
# Other users cannot enter the folder. The files themselves are readable, because each container reads them as another user.
chmod 700 .
random() { od -An -tx1 -N32 /dev/urandom | tr -d ' \n'; }
# keep NAME TEXT: writes a secret unless it exists.
keep() {
  [ -s "$1" ] || printf '%s' "$2" >"$1"
  chmod 444 "$1"
}
keep postgres_password "$(random)"
keep redis_password "$(random)"
keep grafana_password "$(random)"
keep hs256_secret "$(random)"
keep store_url "postgres://posthaste:$(cat postgres_password)@postgres:5432/posthaste"
keep redis_url "redis://:$(cat redis_password)@redis:6379"
echo "docker/secrets is complete; Grafana's admin password is in docker/secrets/grafana_password"
