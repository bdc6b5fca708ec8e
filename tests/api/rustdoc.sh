#!/bin/sh
# rustdoc with its JSON output, which a stable toolchain has behind this switch. Only rustdoc gets it: with the switch in the environment of
# cargo, the build scripts of dependencies would take nightly features for granted and compile everything again.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
