#!/bin/bash
# Exits 0 when the service in this container is ready: posthaste-healthy [PORT] [PATH]. The image contains no HTTP client.
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/${1:-8080}"
printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "${2:-/readyz}" >&3
read -r _ status _ <&3
[ "$status" = 200 ]
