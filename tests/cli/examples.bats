#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The examples, run as a user would: on a profile that the tuner has just written.

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    unset ARFUSE_PROFILE ARFUSE_PROFILE_PATH ARFUSE_ROUTES
    cd "$BATS_FILE_TMPDIR" || exit 1
    # One point, which even a busy machine measures: that the profile serves 4 tokens is what counts.
    mpirun --oversubscribe -n 4 "$OLDPWD/${BUILD:-build}/arfuse-tune" --hidden 256 --topk 3 \
        --device host --tokens 4 --budget 20 --quiet >tune.out 2>tune.err || true
    profile=$(find "$PWD/profiles" -name '*.json' 2>/dev/null)
    [ -n "$profile" ] || cat tune.err
    export profile
}

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    examples=${BUILD:-build}/examples
}

# Runs an example with the streams apart.
split() {
    out=$("$examples/$1" "${@:2}" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
    echo "exit $code"
    echo "$out"
    echo "$err"
}

@test "the tuner wrote a profile, and run_profile runs by it" {
    [ -n "$profile" ]
    split run_profile "$profile" 4 256 3
    [ "$code" = 0 ]
    [ "$(grep -c 'right on 4 ranks' <<<"$out")" = 2 ]
    [[ $out == *"allreduce of 4 tokens: "*"measured, from $profile"* ]]
    [[ $out == *"finalize of 4 tokens: "* ]]
    [ -z "$err" ]
}

@test "run_profile refuses a truncated profile" {
    head -c 300 "$profile" >"$BATS_TEST_TMPDIR/half.json"
    split run_profile "$BATS_TEST_TMPDIR/half.json" 4 256 3
    [ "$code" = 3 ]
    [ -z "$out" ]
    [[ $err == "run_profile: $BATS_TEST_TMPDIR/half.json"* ]]
    [ "$(wc -l <<<"$err")" = 1 ]
}

@test "run_profile refuses a profile of another shape, and names what differs" {
    split run_profile "$profile" 8 256 3
    [ "$code" = 3 ]
    [[ $err == *"tp_size is 4, 8 is needed"* ]]
    split run_profile "$profile" 4 512 3
    [ "$code" = 3 ]
    [[ $err == *"hidden_size is 256, 512 is needed"* ]]
    split run_profile "$profile" 4 256 4
    [ "$code" = 3 ]
    [[ $err == *"top_k is 3, 4 is needed"* ]]
    split run_profile "$BATS_TEST_TMPDIR/absent.json" 4 256 3
    [ "$code" = 3 ]
    [[ $err == *absent.json* ]]
}

@test "run_profile without a profile says how it is used" {
    split run_profile
    [ "$code" = 2 ]
    [[ $err == usage:* ]]
}

@test "an option that no example has is answered with its usage" {
    for example in run_profile three_layers decode_loop no_mpi; do
        for option in --help -x; do
            split "$example" "$option"
            [ "$code" = 2 ]
            [ -z "$out" ]
            [[ $err == "usage: $example "* ]]
        done
    done
    split no_mpi 2 512 too-much
    [ "$code" = 2 ]
}

@test "a model of three layers has the same bits whoever declines" {
    split three_layers
    [ "$code" = 0 ]
    [[ $out == *"the same bits every time"* ]]
    [ "$(grep -cE '[0-9a-f]{16}$' <<<"$out")" = 7 ]
    [ "$(grep -oE '[0-9a-f]{16}$' <<<"$out" | sort -u | wc -l)" = 1 ]
    default=$(grep -oE '[0-9a-f]{16}$' <<<"$out" | head -n 1)
    # Every site was fused at times, and declined at times.
    for site in attn_out moe_out final_norm spec_head; do
        read -r _ calls fused declined _ <<<"$(grep "^$site  *[0-9]" <<<"$out")"
        [ "$fused" -gt 0 ]
        [ "$declined" -gt 0 ]
        [ "$((fused + declined))" -le "$calls" ]
    done
    # The same bits by the tuner's routes as by the default ones.
    split three_layers "$profile"
    [ "$code" = 0 ]
    [ "$(grep -oE '[0-9a-f]{16}$' <<<"$out" | sort -u)" = "$default" ]
}

@test "a decode loop reduces in place, step by step" {
    split decode_loop
    [ "$code" = 0 ]
    [ "$out" = "40 steps on host: right" ]
    [[ $err == *"4 ranks, hidden size 2048, on host: allreduce: "* ]]
    split decode_loop abacus
    [ "$code" = 2 ]
}

@test "shadow checks and checked mode find nothing wrong in it" {
    export ARFUSE_SHADOW_EVERY=3 ARFUSE_CHECKED=1 ARFUSE_CHECK_ORDER=1
    split three_layers
    [ "$code" = 0 ]
    [[ $out == *"the same bits every time"* ]]
}

@test "a team finds itself without MPI" {
    for ranks in 1 2 8; do
        split no_mpi "$ranks" 512
        [ "$code" = 0 ]
        [ "$(grep -c ': right$' <<<"$out")" = "$ranks" ]
        [ -z "$err" ]
    done
    run ldd "$examples/no_mpi"
    [[ $output != *libmpi* ]]
}

@test "what is refused there is said once" {
    split no_mpi 4 100
    [ "$code" = 2 ]
    [ "$err" = "no_mpi: options.hidden_size is 100, expected a multiple of 8" ]
}

@test "PyTorch operators run it by ctypes" {
    case ${BUILD:-build} in *asan* | *tsan*) skip "a sanitizer must be loaded first" ;; esac
    for python in python3 /usr/bin/python3; do
        "$python" -c 'import torch.distributed' 2>/dev/null || continue
        export ARFUSE_LIBRARY=${BUILD:-build}/libarfuse.so
        run "$python" src/examples/torch_op.py 4
        echo "$output"
        [ "$status" = 0 ]
        [[ $output == *"right on 4 ranks, PyTorch "* ]]
        [[ $output != *"not a variable of arfuse"* ]]
        return
    done
    skip "no PyTorch"
}
