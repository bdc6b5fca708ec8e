#!/usr/bin/env bash
# Cleans up when with.sh was killed: guard.sh FOLDER PID-OF-WITH. Runs in a session of its own.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
folder=$1 with=$2
started=$(started_at "$with")
parent=$(parent_of "$with")
# A process that ignores hang-ups (nohup) outlives its parent on purpose.
outlives=$(trap -p HUP)

# A function, for the same reason as in with.sh.
main() {
  while [ "$(started_at "$with")" = "$started" ]; do
    sleep 0.5
    if [ -z "$outlives" ] && [ "$(parent_of "$with")" != "$parent" ]; then
      outlives=notified
      kill -s HUP "$with" 2>/dev/null
    fi
  done

  group_ended() { ! kill -s 0 -- "-$group" 2>/dev/null; }
  if group=$(cat "$folder/group" 2>/dev/null) && [ -n "$group" ]; then
    kill -s TERM -- "-$group" 2>/dev/null
    until_true 20 group_ended || kill -s KILL -- "-$group" 2>/dev/null
  fi
  exec "$scripts/down.sh" "$folder"
}
main
