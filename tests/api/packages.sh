#!/usr/bin/env bash
# Compiles every crate from its package, as a registry would deliver it: unpacks all packages into one workspace, where they depend on each other,
# and checks it. `cargo package` by itself verifies each crate in a target folder of its own, which compiles every dependency again. The files get
# the time at which they are unpacked: with the fixed time that packages have, cargo would take a changed file for that of the last run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cargo package --workspace --exclude posthaste-kit --exclude posthaste-model --allow-dirty --no-verify --quiet --target-dir "$folder"
mkdir "$folder/workspace"
for package in "$folder"/package/*.crate; do tar -xzmf "$package" -C "$folder/workspace"; done

cd "$folder/workspace"
{
  printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n[patch.crates-io]\n'
  for package in *; do printf '%s = { path = "%s" }\n' "${package%-*}" "$package"; done
  # The same profile: what the documentation has checked is used again.
  sed -n '/^\[profile\.dev\]/,/^\[profile\.dev\.package\.posthaste-model\]/p' "$root/Cargo.toml" | sed '$d'
} >"$folder/Cargo.toml"
mv "$folder/Cargo.toml" .
cp "$root/Cargo.lock" .
cargo check --quiet --workspace --offline --target-dir "${CARGO_TARGET_DIR:-$root/target}"
