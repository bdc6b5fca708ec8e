#!/usr/bin/env bash
# Prints the folder with Kafka's jars (jars/) and a formatted data folder (formatted/), both in the cache. They are fetched
# from Maven Central into a temporary folder that is renamed when complete: an interrupted run leaves no partial folder, and
# concurrent runs do not interfere.
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

command -v mvn >/dev/null || die "Kafka's jars are not in $files, and mvn, which fetches them, is not installed"
java=$(java_program) || die "Kafka needs Java 17 or later"
mkdir -p "$cache"
partial=$(mktemp -d "$cache/.kafka-$kafka_version.XXXXXX")
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT TERM HUP

# log4j-slf4j-impl writes the log: without it a broker that cannot start logs no reason.
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

# Formatting takes a second and does not depend on the ports, so its result is cached.
format() {
  mkdir data &&
    properties 1 2 >server.properties &&
    "$java" -XX:-UsePerfData -Dlog4j2.configurationFile="$here/log4j2.properties" -cp 'jars/*' \
      kafka.tools.StorageTool format -t "$cluster_id" -c server.properties &&
    mv data formatted
}

say "fetching Apache Kafka $kafka_version into $files (once, some 45 MB)"
cd "$partial"
# The repository of jars may refuse a request or two.
fetch_repeatedly() { fetch || fetch || fetch; }
{ fetch_repeatedly && format; } </dev/null >log 2>&1 || {
  tail -n 20 log >&2
  die "Kafka could not be fetched from Maven Central and formatted"
}
touch complete
# A folder without the file `complete` is partial. The first run that renames wins; all copies are equal.
[ -f "$files/complete" ] || rm -rf "$files"
mv -T "$partial" "$files" 2>/dev/null || [ -f "$files/complete" ] || die "$files cannot be written"
printf '%s\n' "$files"
