#!/bin/sh
# Needs: java 17 or later, and PostgreSQL's JDBC driver in POSTGRESQL_JAR or in Debian's place.
jar=${POSTGRESQL_JAR:-/usr/share/java/postgresql.jar}
command -v java >/dev/null || { echo "java is not installed"; exit 77; }
[ -e "$jar" ] || { echo "the JDBC driver of PostgreSQL is not installed"; exit 77; }
exec java -cp "$jar" "$(dirname "$0")/Publish.java" "$1"
