#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-tune without a launcher: the dry run, help, and where messages go.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    tune=${BUILD:-build}/arfuse-tune
    unset OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK
}

@test "help and version need nothing" {
    run "$tune" --help
    [ "$status" -eq 0 ]
    [[ $output == *"--hidden=H"* ]]
    run "$tune" --version
    [ "$status" -eq 0 ]
    [[ $output =~ ^arfuse-tune\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "a message begins with the program's name whatever path started it" {
    ln -s "$PWD/$tune" "$BATS_TEST_TMPDIR/other"
    run "$BATS_TEST_TMPDIR/other" --hidden 0
    [ "$status" -eq 2 ]
    [[ $output == "arfuse-tune: --hidden '0'"* ]]
}

@test "a dry run says shape, placement, points, memory and time" {
    run "$tune" --hidden 6144 --topk 10 --tp 8 --dry-run --device model:default
    [ "$status" -eq 0 ]
    [[ $output == *"shape tp_size 8, hidden_size 6144, top_k 10, bf16"* ]]
    [[ $output == *"placement 8 ranks on 1 process, 8 each, device model"* ]]
    [[ $output == *"points 1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192 tokens, 28 in all"* ]]
    # rules.md section 6: 6 T C H of LL at 64 tokens; the counters stand apart.
    [[ $output == *"memory ll 18874368 bytes a rank for 64 tokens"* ]]
    [[ $output == *"time about "*" s, at most 300 s (the budget)"* ]]
}

@test "LL candidates show their blocks a token: 48, 12 and 6 for 1, 4 and 8 elements x 128 threads" {
    run "$tune" --hidden 6144 --topk 10 --tp 8 --dry-run --device model:default
    grep -q '^candidate ll .*48 blocks a token elements_per_thread=1 threads=128 ' <<<"$output"
    grep -q '^candidate ll .*12 blocks a token elements_per_thread=4 threads=128 ' <<<"$output"
    grep -q '^candidate ll .* 6 blocks a token elements_per_thread=8 threads=128 ' <<<"$output"
}

@test "HT candidates show their split" {
    for case in 6144:384x2 8192:512x2 7168:448x2; do
        run "$tune" --hidden "${case%:*}" --topk 10 --tp 8 --dry-run --device model:default
        grep -q "^candidate ht .*${case#*:} " <<<"$output"
    done
}

@test "what is refused stands with its reason" {
    run "$tune" --hidden 2880 --topk 4 --tp 8 --dry-run --device model:default
    [ "$status" -eq 0 ]
    grep -q '^refused ht allreduce: .*' <<<"$output"
    [ "$(grep -c '^candidate ht' <<<"$output")" -eq 0 ]
    run "$tune" --hidden 6144 --topk 10 --tp 8 --dry-run --device model:default
    grep -q '^refused ht allreduce 512x2: .*768 packs' <<<"$output"
}

@test "whole tokens only where the ranks do not cut one into equal slices of packs" {
    # H R and the packs of a token: 360 / 16, 769 / 8 and 896 / 6 are no whole numbers.
    for case in 2880:16:360 6152:8:769 7168:6:896; do
        IFS=: read -r hidden ranks packs <<<"$case"
        run "$tune" --hidden "$hidden" --topk 4 --tp "$ranks" --dry-run --device model:default
        [ "$status" -eq 0 ]
        grep -q '^candidate bt allreduce .* owner=0 ' <<<"$output"
        [ "$(grep -c '^candidate bt .* owner=1 ' <<<"$output")" -eq 0 ]
        grep -qx "refused bt allreduce slices: owner 1: $packs packs a token do not cut into $ranks equal slices" <<<"$output"
        grep -q '^candidate unfused allreduce ' <<<"$output"
    done
    run "$tune" --hidden 2880 --topk 4 --tp 8 --dry-run --device model:default
    grep -q '^candidate bt .* owner=1 ' <<<"$output"
    [ "$(grep -c '^refused bt' <<<"$output")" -eq 0 ]
    # Fewer tokens than ranks take no candidate away.
    run "$tune" --hidden 6144 --topk 4 --tp 8 --dry-run --device model:default --tokens 1,7
    for protocol in ll bt ht unfused separate; do
        grep -q "^candidate $protocol " <<<"$output"
    done
    [ "$(grep -c '^refused bt' <<<"$output")" -eq 0 ]
}

@test "filters leave out what they say, and nothing else" {
    run "$tune" --hidden 6144 --topk 10 --tp 8 --dry-run --device model:default --protocols ll,bt --tokens 1-256*2
    [ "$status" -eq 0 ]
    [ "$(grep '^candidate' <<<"$output" | cut -d' ' -f2 | sort -u | tr '\n' ' ')" = "bt ll " ]
    grep -q '^refused ht allreduce: left out by --protocols' <<<"$output"
    run "$tune" --hidden 6144 --tp 8 --dry-run --device model:default --set ll.threads=256
    [ "$status" -eq 0 ]
    [ "$(grep '^candidate ll' <<<"$output" | grep -vc 'blocks a token elements_per_thread=[0-9]* threads=256 ')" -eq 0 ]
    run "$tune" --hidden 6144 --tp 8 --dry-run --device model:default --set ll.threads=2048
    [ "$status" -eq 2 ]
}

@test "the host device lists its own candidates and ladder" {
    run "$tune" --hidden 6144 --topk 10 --tp 4 --dry-run --device host
    [ "$status" -eq 0 ]
    [[ $output == *"points 1,2,4,8,16,32,64,128,256 tokens, 18 in all"* ]]
    [[ $output == *"kernel set arfuse-host"* ]]
    grep -q '^candidate separate finalize' <<<"$output"
    [[ $output == *"at most 60 s (the budget)"* ]]
}

@test "a dry run lists what a run then verifies" {
    run "$tune" --hidden 512 --topk 2 --tp 2 --dry-run --device model:default --tokens 1,2 --protocols ll,unfused
    listed=$(grep -c '^candidate' <<<"$output")
    "$tune" --hidden 512 --topk 2 --tp 2 --device model:default --tokens 1,2 --protocols ll,unfused \
        --output "$BATS_TEST_TMPDIR" 2>"$BATS_TEST_TMPDIR/err" >/dev/null
    grep -q ": $listed candidates verified" "$BATS_TEST_TMPDIR/err"
}

@test "a model file that is not there is refused" {
    run "$tune" --hidden 512 --dry-run --device model:/nonexistent
    [ "$status" -ne 0 ]
    [ "${#lines[@]}" -eq 1 ]
}

@test "the time follows from the schedule, and is the budget's limit where it is" {
    seconds() { grep -oE '^time about [0-9.e+]+' <<<"$output" | cut -d' ' -f3; }
    model="--hidden 512 --topk 2 --tp 2 --dry-run --device model:default"
    run "$tune" $model --tokens 1 --protocols unfused
    small=$(seconds)
    [[ $output == *"longer where times are noisy"* ]]
    run "$tune" $model --tokens 1-64*2 --protocols ll,unfused
    python3 -c "assert 0 < $small < $(seconds) < 300"
    run "$tune" $model --budget 0.01
    [[ $output == *"time about 0.01 s, at most 0.01 s (the budget): its limit, since all"* ]]
    run "$tune" --hidden 512,1024 --tp 2 --dry-run --device model:default --budget 100
    [[ $output == *"at most 50 s (the budget's share of this shape)"* ]]
}

@test "memory that cannot be had is said as the run says it" {
    faults=model:$PWD/tests/fixtures/model/memory.json
    run "$tune" --hidden 6144 --topk 10 --tp 4 --dry-run --device "$faults"
    [ "$status" -eq 0 ]
    grep -qE '^memory ht [0-9]+ bytes a rank for 4096 tokens, curtailed from 8192$' <<<"$output"
    grep -q '^arfuse-tune: ht is tried up to 4096 tokens, not 8192: ' <<<"$output"
}

@test "sizes beyond all memory are curtailed at once, to what all protocols can have together" {
    start=$(date +%s%N)
    run timeout 60 "$tune" --hidden 65536 --topk 64 --tp 72 --tokens '1-1048576*2' --device host --dry-run
    took=$((($(date +%s%N) - start) / 1000000))
    [ "$status" -eq 0 ]
    [ "$took" -lt 5000 ] # a loaded machine is no failure; memory that is touched would be
    grep -qE '^memory ht [0-9]+ bytes a rank for [0-9]+ tokens, curtailed from 1048576$' <<<"$output"
    all=$(grep -oE '^memory all [0-9]+' <<<"$output" | cut -d' ' -f3)
    left=$(grep -oE 'this machine has [0-9]+ left' <<<"$output" | cut -d' ' -f4 | sort -n | tail -n 1)
    [ "$all" -gt 0 ]
    [ $((72 * all)) -le "$left" ]
}

@test "files that the run would refuse are refused" {
    model="--hidden 512 --topk 2 --tp 2 --device model:default --dry-run"
    echo mine >"$BATS_TEST_TMPDIR/file"
    for wrong in "--weights /nonexistent" "--weights $BATS_TEST_TMPDIR/file" "--base /nonexistent.json" \
        "--output $BATS_TEST_TMPDIR/file/below"; do
        run "$tune" $model $wrong
        [ "$status" -ne 0 ]
        [ "${#lines[@]}" -eq 1 ]
    done
    run "$tune" $model --output "$BATS_TEST_TMPDIR/absent"
    [ "$status" -eq 0 ]
    [ ! -e "$BATS_TEST_TMPDIR/absent" ]
}
