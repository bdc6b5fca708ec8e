#!/usr/bin/env bash
# Installs a built program with its manual pages, shell completions, documents and systemd unit: install.sh BINARY PREFIX
# Writes below DESTDIR when that is set, as packages are built. Prints nothing.
set -euo pipefail
[ $# = 2 ] || { echo "usage: install.sh BINARY PREFIX" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
binary=$1 prefix=$2
root=${DESTDIR:-}$prefix

# Splits the manual, which the program prints as one document, at the title of each page. A page is named for its title, and begins with the
# two lines of the preamble that the program prints before every section.
manual_pages() {
  awk -v folder="$1" '
    /^\.ie \\n\(\.g/ { preamble = $0; getline; preamble = preamble "\n" $0; next }
    /^\.TH / { file = folder "/" $2 ".1"; print preamble > file }
    { print > file }'
}

install -D -m 755 "$binary" "$root/bin/posthaste"
install -d -m 755 "$root/share/man/man1"
"$binary" completions man | manual_pages "$root/share/man/man1"
gzip -n -9 -f "$root"/share/man/man1/posthaste*.1

# completion SHELL FILE: writes the completions of a shell to the place where it looks for them.
completion() {
  install -d -m 755 "$(dirname "$root/share/$2")"
  "$binary" completions "$1" >"$root/share/$2"
}
completion bash bash-completion/completions/posthaste
completion zsh zsh/site-functions/_posthaste
completion fish fish/vendor_completions.d/posthaste.fish

# At the same places below this folder as in the repository, so that the links between the documents lead somewhere.
(cd "$repository" && find *.md LICENSE-* docs -type f) | while read -r document; do
  install -D -m 644 "$repository/$document" "$root/share/doc/posthaste/$document"
done

install -d -m 755 "$root/lib/systemd/system"
sed "s|/usr/|$prefix/|" "$here/../posthaste.service" >"$root/lib/systemd/system/posthaste.service"
