#!/bin/sh
# Needs: go with the module github.com/jackc/pgx/v5 (go mod download, in this folder).
cd "$(dirname "$0")" || exit 1
command -v go >/dev/null || { echo "go is not installed"; exit 77; }
GOFLAGS=-mod=mod GOPROXY=off go vet . >/dev/null 2>&1 || { echo "go has not downloaded pgx"; exit 77; }
GOFLAGS=-mod=mod GOPROXY=off exec go run . "$1"
