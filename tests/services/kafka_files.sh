#!/usr/bin/env bash
# Prints the folder with Kafka's jars (jars/) and a freshly formatted data folder (formatted/), both kept in the cache.
# Fetched from Maven Central under another name and renamed when complete: an interrupted run leaves nothing that looks
# whole, and two runs at once do not mix.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source-path=SCRIPTDIR source=java.sh
. "$here/java.sh"
# shellcheck source-path=SCRIPTDIR source=kafka.sh
. "$here/kafka.sh"

cache=$(cache_folder)
files=$cache/kafka-$kafka_version
if [ -f "$files/complete" ]; then
  printf '%s\n' "$files"
  exit
fi

command -v mvn >/dev/null || die "Kafka's jars are not in $files, and there is no mvn to fetch them"
java=$(java_program) || die "Kafka wants Java 17 or later"
mkdir -p "$cache"
making=$(mktemp -d "$cache/.kafka-$kafka_version.XXXXXX")
trap 'rm -rf "$making"' EXIT
trap 'exit 130' INT TERM HUP

# log4j-slf4j-impl lets Kafka speak: without it a broker that cannot start dies in silence.
pom() {
  cat <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>posthaste</groupId><artifactId>kafka-for-tests</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka_version</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
  </dependencies>
</project>
END
}

fetch() {
  pom >pom.xml &&
    mvn -q -B -ntp org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars
}

# Formatting takes a JVM a second, and each run could only repeat it: the ports are not part of what it writes.
format() {
  mkdir data &&
    properties 1 2 >server.properties &&
    "$java" -XX:-UsePerfData -Dlog4j2.configurationFile="$here/log4j2.properties" -cp 'jars/*' \
      kafka.tools.StorageTool format -t "$cluster_id" -c server.properties &&
    mv data formatted
}

say "fetching Apache Kafka $kafka_version into $files (once, some 45 MB)"
cd "$making"
{ fetch && format; } </dev/null >log 2>&1 || {
  tail -n 20 log >&2
  die "Kafka could not be fetched from Maven Central and formatted"
}
touch complete
# What stands there without the mark is half made. Whoever renames first wins; the copies are alike.
[ -f "$files/complete" ] || rm -rf "$files"
mv -T "$making" "$files" 2>/dev/null || [ -f "$files/complete" ] || die "$files cannot be written"
printf '%s\n' "$files"
