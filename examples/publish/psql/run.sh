#!/bin/sh
# Needs: psql.
command -v psql >/dev/null || { echo "psql is not installed"; exit 77; }
exec psql "$1" --quiet --no-psqlrc --set ON_ERROR_STOP=1 --file "$(dirname "$0")/publish.sql"
