#!/usr/bin/env bash
# Requests the metadata of the Kafka on a local port: succeeds when the reply names at least one broker. The port opens
# earlier, and a broker that is still fenced is not in the reply. Written by hand, because a JVM takes a second to start.
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/$1"
# Length 23; Metadata, version 1; correlation 1; client "posthaste"; no topics.
printf '\x00\x00\x00\x17\x00\x03\x00\x01\x00\x00\x00\x01\x00\x09posthaste\x00\x00\x00\x00' >&3
# Length, correlation, number of brokers: four bytes each.
brokers=$(head -c 12 <&3 | od -An -tx1 -j8 | tr -d ' \n')
[ "${#brokers}" = 8 ] && [ "$brokers" != 00000000 ]
