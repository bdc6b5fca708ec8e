#!/usr/bin/env bash
# Builds a Debian package from a built program of this machine's architecture: deb.sh BINARY FOLDER. Prints the path of the package.
# Needs dpkg-deb. The package has the program, its unit, manual pages, completions, configuration and documents.
set -euo pipefail
[ $# = 2 ] || { echo "usage: deb.sh BINARY FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
binary=$1
version=$("$binary" --version | awk '{ print $2 }')
architecture=$(dpkg --print-architecture)

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
DESTDIR=$root "$here/install.sh" "$binary" /usr
# Debian's zsh has a folder of its own for packages.
mkdir "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_posthaste" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

install -D -m 644 "$repository/config/production.toml" "$root/etc/posthaste/posthaste.toml"
documents=$root/usr/share/doc/posthaste
install -m 644 "$here/debian/copyright" "$documents/copyright"
gzip -n -9 -c "$repository/CHANGELOG.md" >"$documents/changelog.gz"
# Files to copy: a board, rules and a scrape configuration for the monitoring that is there.
install -d -m 755 "$documents/monitoring"
install -m 644 "$repository/docker/prometheus.yml" "$repository/docker/rules.yml" "$repository/docker/slo-rules.yml" \
  "$repository/docker/grafana/boards/posthaste.json" "$documents/monitoring"

# A static program needs no library. A dynamic one needs at least the C library that it was linked with.
libraries=
if ldd "$binary" >/dev/null 2>&1; then
  library=$(dpkg-query -W -f '${Version}' libc6)
  libraries="libc6 (>= ${library%%-*}), "
fi

control=$root/DEBIAN
install -d -m 755 "$control"
install -m 755 "$here/debian/postinst" "$here/debian/prerm" "$here/debian/postrm" "$control"
printf '/etc/posthaste/posthaste.toml\n' >"$control/conffiles"
cat >"$control/control" <<END
Package: posthaste
Version: $version
Architecture: $architecture
Maintainer: The authors of posthaste <posthaste@localhost>
Installed-Size: $(du -k -s --exclude=DEBIAN "$root" | cut -f1)
Depends: ${libraries}passwd
Recommends: ca-certificates
Section: net
Priority: optional
Description: order service that never loses an event
 Orders and their events are stored in one transaction (a transactional
 outbox). Supervised workers publish each event once, and in order per key,
 to Apache Kafka or to an embedded log. The store is embedded, PostgreSQL
 or Redis.
END

mkdir -p "$2"
package=$2/posthaste_${version}_$architecture.deb
dpkg-deb --root-owner-group ${POSTHASTE_DEB_COMPRESSION:+-Z"$POSTHASTE_DEB_COMPRESSION"} --build "$root" "$package" >/dev/null
printf '%s\n' "$package"
