#!/usr/bin/env bash
# Finds a Java for Kafka 4, which needs version 17 or later. Sourced, not executed.

java_program() {
  local java version
  for java in "${JAVA_HOME:-}/bin/java" "$(command -v java)" /usr/lib/jvm/*/bin/java; do
    [ -x "$java" ] || continue
    # 17.0.15, or 1.8.0 for old versions.
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ] || continue
    printf '%s\n' "$java"
    return
  done
  return 1
}
