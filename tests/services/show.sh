#!/usr/bin/env bash
# Prints how to use the services that with.sh started, and waits for Ctrl-C. `make services` runs it.
set -euo pipefail
trap 'exit 0' INT TERM HUP
cat <<END
PostgreSQL, Redis and Apache Kafka run until you press Ctrl-C; then they and their data are removed.

In another terminal, for the tests:
$(for name in POSTGRES PGBOUNCER REDIS KAFKA SERVICES; do
  name=POSTHASTE_TEST_$name
  [ -z "${!name:-}" ] || printf '  export %s=%q\n' "$name" "${!name}"
done)

The service with them:
  POSTHASTE__STORE__KIND=postgres POSTHASTE__STORE__URL=$POSTHASTE_TEST_POSTGRES \\
  POSTHASTE__BROKER__KIND=kafka POSTHASTE__BROKER__BOOTSTRAP_SERVERS=$POSTHASTE_TEST_KAFKA \\
  POSTHASTE__CACHE__KIND=redis POSTHASTE__REDIS__URL=$POSTHASTE_TEST_REDIS \\
  posthaste serve --dev --migrate
END
if [ -n "${POSTHASTE_TEST_SERVICES:-}" ]; then
  cat <<END

Stop, pause or kill one: tests/services/service.sh kill|start|stop|pause|resume|status postgres|pgbouncer|redis|kafka $POSTHASTE_TEST_SERVICES
END
fi
sleep infinity &
wait
