#!/usr/bin/env bash
# Which Java to use: Kafka 4 wants 17 or later. Sourced, not run.

java_program() {
  local java version
  for java in "${JAVA_HOME:-}/bin/java" "$(command -v java)" /usr/lib/jvm/*/bin/java; do
    [ -x "$java" ] || continue
    # 17.0.15, or 1.8.0 as old ones say it.
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ] || continue
    printf '%s\n' "$java"
    return
  done
  return 1
}
