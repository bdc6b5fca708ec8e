#!/usr/bin/env bash
# Starts temporary services in parallel: up.sh FOLDER postgres redis kafka. Writes FOLDER/env, which a shell can source.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment/common.sh"
folder=$1
shift
require_folder "$folder"

jobs=()
for service in "$@"; do
  "$scripts/service.sh" create "$service" "$folder" &
  jobs+=($!)
done
failed=0
for job in "${jobs[@]}"; do
  wait "$job" || failed=1
done
[ "$failed" = 0 ] || exit 1
# It needs the port of the server behind it.
case " $* " in *' postgres '*) "$scripts/service.sh" create pgbouncer "$folder" ;; esac

{
  printf 'export POSTHASTE_TEST_SERVICES=%q\n' "$folder"
  for service in "$@"; do
    port=$(cat "$folder/$service/port")
    case $service in
      postgres)
        echo "export POSTHASTE_TEST_POSTGRES=postgres://posthaste@127.0.0.1:$port/postgres"
        echo "export POSTHASTE_TEST_PGBOUNCER=127.0.0.1:$(cat "$folder/pgbouncer/port")"
        ;;
      redis) echo "export POSTHASTE_TEST_REDIS=redis://127.0.0.1:$port" ;;
      kafka) echo "export POSTHASTE_TEST_KAFKA=127.0.0.1:$port" ;;
    esac
  done
} >"$folder/env"
