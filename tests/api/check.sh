#!/usr/bin/env bash
# Compares the public API of the library crates with the committed listings beside this file, and prints the difference.
# POSTHASTE_WRITE_API=1 accepts the present API: commit the changed listings with the change. Installs cargo-public-api into the cache
# folder once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source-path=SCRIPTDIR source=../services/environment/common.sh
. tests/services/environment/common.sh

# It reads the format of rustdoc's JSON that the toolchain of rust-toolchain.toml writes: raise both together.
version=0.52.0
libraries=(supervision outbox postgres kafka posthaste)
listings=tests/api
folder=$(cache_folder)/public-api-$version

if [ ! -x "$folder/bin/cargo-public-api" ]; then
  mkdir -p "$(dirname "$folder")"
  partial=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$partial"' EXIT
  # A debug build: it takes half the time, and reads a listing in a moment.
  cargo install --quiet --locked --debug --root "$partial" "cargo-public-api@$version"
  # Another run may have been quicker: its files are the same.
  mv -T "$partial" "$folder" 2>/dev/null || [ -x "$folder/bin/cargo-public-api" ]
fi

# The whole workspace, as clippy and the documentation build it: what they have checked is used again.
RUSTDOC=$PWD/$listings/rustdoc.sh RUSTDOCFLAGS="-Z unstable-options --output-format json" \
  cargo doc --workspace --no-deps --lib --quiet

different=0
for library in "${libraries[@]}"; do
  listing=$listings/$library.txt
  present=$("$folder/bin/cargo-public-api" public-api -sss --rustdoc-json "${CARGO_TARGET_DIR:-target}/doc/$library.json")
  if [ "${POSTHASTE_WRITE_API:-}" = 1 ]; then
    printf '%s\n' "$present" >"$listing"
  elif ! diff --unified=0 --label "$listing" --label "$library as it is" "$listing" <(printf '%s\n' "$present"); then
    different=1
  fi
done
if [ "$different" = 1 ]; then
  echo "The public API differs: a line that is gone breaks users (CHANGELOG.md, version). Accept it with: POSTHASTE_WRITE_API=1 make api" >&2
  exit 1
fi
