#!/bin/sh
# Needs: python3 with psycopg 3 (pip install "psycopg[binary]").
python3 -c 'import psycopg' 2>/dev/null || { echo "python3 with psycopg is not installed"; exit 77; }
exec python3 "$(dirname "$0")/publish.py" "$1"
