#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Kernels compile without a GPU. One hidden size and one architecture here; all of them by
# `make check-kernels`, and in the long form.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/tests/check_kernels
    [ -x "$program" ] || skip "built without the CUDA device"
    run "$program" --hidden 6144 --arch 90 --share 0/100000
    [ "$status" -ne 4 ] || skip "no usable libnvrtc"
}

@test "every kernel compiles; no default plan spills" {
    if [ -n "${ARFUSE_TEST_LONG-}" ]; then
        run scripts/check-kernels
    else
        run scripts/check-kernels --hidden 6144 --arch 100
    fi
    echo "$output"
    [ "$status" -eq 0 ]
    for kernel in ll_publish ll_collect ll_single bt_publish bt_reduce bt_norm bt_single ht finalize unfused_scatter \
        unfused_reduce unfused_norm library_reduce library_norm library_mark team_barrier order; do
        [[ $output == *"$kernel "*registers* ]]
    done
}

@test "an architecture that the compiler does not know fails, by name" {
    run "$program" --hidden 6144 --arch 20 --share 0/40
    echo "$output"
    [ "$status" -eq 1 ]
    [[ $output == *"for sm_20:"* ]]
}

@test "wrong arguments are refused with the usage" {
    for arguments in "--hidden 0" "--topk 0" "--hidden" "--share 3/2" "--other 1"; do
        # shellcheck disable=SC2086 # two words on purpose
        run "$program" $arguments
        [ "$status" -eq 2 ]
        [[ $output == usage:* ]]
    done
}
