#!/bin/sh
# Needs: node with the package pg (npm install pg, in this folder or above it).
cd "$(dirname "$0")" || exit 1
node -e 'require.resolve("pg")' 2>/dev/null || { echo "node with pg is not installed"; exit 77; }
exec node publish.js "$1"
