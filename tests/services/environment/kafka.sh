#!/usr/bin/env bash
# Apache Kafka, one node that is broker and controller, or a further broker of such a node with POSTHASTE_KAFKA_MEMBER_OF: data, start command
# and probe. Sourced by service.sh, in its folder.
# shellcheck disable=SC2034,SC2154 # shared with service.sh
# shellcheck source-path=SCRIPTDIR source=java.sh
. "$here/java.sh"
# shellcheck source-path=SCRIPTDIR source=kafka_security.sh
. "$here/kafka_security.sh"

stop_signal=TERM
drop_signal=KILL
port_taken='BindException|Address already in use'
# Any 16 bytes in base64 ("posthaste-tests!").
cluster_id=cG9zdGhhc3RlLXRlc3RzIQ

make_data() {
  local files
  files=$("$here/kafka_files.sh")
  java_program >java
  printf '%s\n' "$files/jars" >jars
  cp -r "$files/formatted" data
  mkdir tmp
  if [ -n "${POSTHASTE_KAFKA_MEMBER_OF:-}" ]; then
    # The broker gives its folder an id of its own at its first start.
    sed -i -e 's/^node.id=1$/node.id=2/' -e '/^directory.id=/d' data/meta.properties
    printf '%s\n' "$POSTHASTE_KAFKA_MEMBER_OF" >member_of
  else
    cp "$(certificate_folder)"/{keystore.p12,authority.pem} .
  fi
}

# With the C1 compiler alone Kafka starts faster and runs more slowly; measurements need C2 too
# (POSTHASTE_KAFKA_JIT=-XX:+TieredCompilation). Native libraries are unpacked into this folder, so that no file remains.
start_command() {
  # A further broker reads the controller's port once, when it is created: the first node is not started again in between.
  local client others
  client=$(cat port)
  if [ -f member_of ]; then
    member_properties "$client" "$(cat member_of)" >server.properties
  else
    mapfile -t others < <(other_ports "$client" 3)
    printf '%s\n' "${others[0]}" >controller_port
    printf '%s\n' "${others[1]}" >sasl_port
    printf '%s\n' "${others[2]}" >tls_port
    {
      properties "$client" "${others[@]}"
      secured_properties
    } >server.properties
  fi
  command=("$(cat java)" -Xmx512m -XX:+UseSerialGC "${POSTHASTE_KAFKA_JIT:--XX:TieredStopAtLevel=1}" -XX:-UsePerfData -Djava.io.tmpdir="$PWD/tmp"
    -Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$(cat jars)/*" kafka.Kafka server.properties)
}

# Prints so many unused ports, all different, and different from this one.
other_ports() {
  local taken=" $1 " left=$2 port
  while [ "$left" -gt 0 ]; do
    port=$(free_port)
    case $taken in *" $port "*) continue ;; esac
    printf '%s\n' "$port"
    taken+="$port "
    left=$((left - 1))
  done
}

# properties PORT CONTROLLER_PORT [SASL_PORT TLS_PORT].
# A test restricts a user of a secured listener to some operations on a topic of its own; everything else is permitted.
# A session of 4 s: after kill -9 the controller fences the new broker until the old session expires. A broker that is never killed gets a longer
# one: the controller also fences a broker that a busy machine pauses for longer, and then no partition has a leader.
properties() {
  cat <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$2
listeners=PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$2${3:+,SASL://127.0.0.1:$3,TLS://127.0.0.1:$4}
advertised.listeners=PLAINTEXT://127.0.0.1:$1${3:+,SASL://127.0.0.1:$3,TLS://127.0.0.1:$4}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL
log.dirs=$PWD/data
broker.session.timeout.ms=${POSTHASTE_KAFKA_SESSION_MS:-4000}
broker.heartbeat.interval.ms=500
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=12
auto.create.topics.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
END
}

# A further broker; the first node stays the only controller.
member_properties() {
  properties "$1" "$2" | sed -e 's/^process.roles=.*/process.roles=broker/' -e 's/^node.id=.*/node.id=2/' \
    -e 's|^listeners=.*|listeners=PLAINTEXT://127.0.0.1:'"$1"'|'
}

answers() {
  timeout 2 "$here/kafka_metadata.sh" "$1" 2>/dev/null
}

clear_outside() { :; }
