#!/usr/bin/env bash
# Authentication and encryption of the Kafka of the tests, on two listeners of its own: SASL (not encrypted) and TLS (SASL too). Users of
# SCRAM are created by the test that needs them. Sourced, not executed.
# shellcheck disable=SC2154 # shared with kafka.sh

# Of the keystore; it protects nothing.
keystore_password=posthaste

# Prints the folder with the broker's keystore and the certificate that clients trust. Made once and cached: keytool takes seconds.
certificate_folder() {
  local folder partial
  folder=$(cache_folder)/kafka-certificate
  if [ ! -f "$folder/authority.pem" ]; then
    mkdir -p "$(cache_folder)"
    partial=$(mktemp -d "$folder.XXXXXX")
    make_certificate "$partial" >&2 || die "keytool could not create the certificate of Kafka"
    # The first of several runs wins.
    mv -T "$partial" "$folder" 2>/dev/null || rm -rf "$partial"
  fi
  printf '%s\n' "$folder"
}

make_certificate() {
  local keytool
  keytool=$(dirname "$(readlink -f "$(java_program)")")/keytool
  [ -x "$keytool" ] || keytool=keytool
  "$keytool" -genkeypair -alias kafka -keyalg EC -groupname secp256r1 -dname CN=posthaste-tests -ext san=ip:127.0.0.1,dns:localhost \
    -validity 3650 -storetype PKCS12 -keystore "$1/keystore.p12" -storepass "$keystore_password" &&
    "$keytool" -exportcert -rfc -alias kafka -keystore "$1/keystore.p12" -storepass "$keystore_password" >"$1/authority.pem"
}

# The users of PLAIN are posthaste, with the password plain-secret, and limited, with limited-secret, for tests of permissions.
secured_properties() {
  local listener
  cat <<END
listener.name.tls.ssl.keystore.type=PKCS12
listener.name.tls.ssl.keystore.location=$PWD/keystore.p12
listener.name.tls.ssl.keystore.password=$keystore_password
listener.name.tls.ssl.key.password=$keystore_password
END
  for listener in sasl tls; do
    cat <<END
listener.name.$listener.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.$listener.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_posthaste="plain-secret" user_limited="limited-secret";
listener.name.$listener.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.$listener.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
END
  done
}
