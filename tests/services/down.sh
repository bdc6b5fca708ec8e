#!/usr/bin/env bash
# Stops the services of a folder and removes it: down.sh FOLDER. Safe to call twice, and after an interrupted up.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=environment/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment/common.sh"
[ -e "$1" ] || exit 0
require_folder "$1"

jobs=()
# Servers that a test started in folders of their own.
for nested in "$1"/*/"$mark"; do
  [ -f "$nested" ] || continue
  "$scripts/down.sh" "$(dirname "$nested")" &
  jobs+=($!)
done
for service in pgbouncer postgres redis kafka; do
  [ -d "$1/$service" ] || continue
  "$scripts/service.sh" drop "$service" "$1" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do
  wait "$job" || say "a service of $1 did not end"
done
rm -rf "$1"
