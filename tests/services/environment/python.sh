#!/usr/bin/env bash
# Virtual environments of Python in the cache folder, for tools that checks use. Sourced after common.sh.

# Debian has the modules of virtual environments in a package of their own.
create_environment() {
  python3 -m venv "$1" >/dev/null 2>&1 && return
  local root=()
  [ "$(id -u)" = 0 ] || root=(sudo -n)
  { "${root[@]}" apt-get update -qq && "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } \
    </dev/null >/dev/null 2>&1 ||
    die "please install python3 with its module venv (on Debian: python3-venv)"
  python3 -m venv "$1" >/dev/null
}

# Prints the environment that has the packages of a file with exact versions; installs it once: python_environment NAME REQUIREMENTS
python_environment() {
  local folder
  folder=$(cache_folder)/$1-$(sha256sum "$2" | cut -c1-16)
  if [ ! -e "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    create_environment "$folder"
    # An interrupted installation has no mark, and is repeated.
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$2" >&2 ||
      { rm -rf "$folder"; die "the packages of $2 cannot be installed"; }
    touch "$folder/complete"
  fi
  printf '%s\n' "$folder"
}
