#!/usr/bin/env bash
# Clears up for a with.sh that was killed and cannot: guard.sh FOLDER PID-OF-WITH. Lives in a session of its own.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
folder=$1 with=$2
started=$(started_at "$with")
parent=$(parent_of "$with")
# Who ignores hang-ups (nohup) wants to outlive whoever started it.
outlives=$(trap -p HUP)

# A function, as in with.sh.
main() {
  while [ "$(started_at "$with")" = "$started" ]; do
    sleep 0.5
    if [ -z "$outlives" ] && [ "$(parent_of "$with")" != "$parent" ]; then
      outlives=told
      kill -s HUP "$with" 2>/dev/null
    fi
  done

  group_ended() { ! kill -s 0 -- "-$group" 2>/dev/null; }
  if group=$(cat "$folder/group" 2>/dev/null) && [ -n "$group" ]; then
    kill -s TERM -- "-$group" 2>/dev/null
    until_true 20 group_ended || kill -s KILL -- "-$group" 2>/dev/null
  fi
  exec "$here/down.sh" "$folder"
}
main
