#!/usr/bin/env bash
# Ends the services of a folder and removes it: down.sh FOLDER. Safe to call twice, and while up.sh was cut short.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ -e "$1" ] || exit 0
require_folder "$1"

jobs=()
for service in postgres redis kafka; do
  [ -d "$1/$service" ] || continue
  "$here/service.sh" drop "$service" "$1" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do
  wait "$job" || say "a service of $1 did not end"
done
rm -rf "$1"
