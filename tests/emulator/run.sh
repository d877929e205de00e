#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the units and runs all cases, then the twins: copies of the kernels with a planted fault,
# which must be found. Prints TAP.
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=$BUILD/tests/emulator_test
units=$BUILD/tests/emulator
build() { # KERNELS FOLDER [CASE]
    local kernels=$1 folder=$2
    shift 2
    mkdir -p "$folder"
    "$program" --units "$@" | sort -u | xargs -P2 -L1 "$here/compile" "$kernels" "$folder"
}
only=()
[ -z "${EMULATOR_CASE:-}" ] || only=("$EMULATOR_CASE")
build "$here/../../kernels" "$units" "${only[@]}" || { echo "not ok 1 - the kernels compile for the CPU"; echo 1..1; exit 1; }
exec "$program" "$units" "${only[@]}"
