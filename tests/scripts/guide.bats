#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the README tells those who launch on their own machines.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    guide=$(sed -n '/^## On a cluster/,/^## Exit codes/p' README.md)
}

@test "the guide says how to launch as root, beyond the cores and on several nodes" {
    for word in OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 --oversubscribe \
        '--map-by :oversubscribe' '-x ARFUSE_PROFILE' --dry-run; do
        grep -qF -- "$word" <<<"$guide" || {
            echo "no $word in the guide"
            return 1
        }
    done
    # The option does not reach other nodes; the guide does not teach it.
    [[ $guide != *--allow-run-as-root* ]]
    # Every variable that the library reads is in the list to forward.
    for name in $(grep -rhoE '"ARFUSE_[A-Z_]+"' src/runtime/environment.c | tr -d '"' | sort -u); do
        case $name in *_) continue ;; esac # the beginning of a name
        grep -qF "$name" <<<"$guide" src/arfuse.h || {
            echo "$name stands nowhere"
            return 1
        }
    done
}

@test "no program sets what lets root launch" {
    run grep -rn 'ALLOW_RUN_AS_ROOT' src
    [ "$status" -eq 1 ]
}
