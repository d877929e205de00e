#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile diff: equal inside the noise, different beyond it, and which of the two it is.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    good=tests/fixtures/profiles/good/measured.json
    published=profiles/published
    a=$BATS_TEST_TMPDIR/a.json
    b=$BATS_TEST_TMPDIR/b.json
    cp "$good" "$a"
}

split() {
    out=$("$program" "$@" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
}

@test "a profile is equal to itself" {
    while read -r file; do
        split diff "$file" "$file"
        [ "$code" = 0 ]
        [ -z "$err" ]
        [[ $out == *$'\nequal ('* ]]
        [[ $out != *different* ]]
    done < <(find $published tests/fixtures/profiles/good -name '*.json')
}

@test "a bound that moved inside its interval is equal, beyond it different" {
    # the first allreduce bound is 12 [12, 13] in the fixture
    jq '.routes.allreduce[0].max_tokens = 14 | .evidence.routes.allreduce[0].bound_interval = [10, 16]' "$good" >"$b"
    split diff "$a" "$b"
    echo "$out"
    [ "$code" = 0 ]
    grep -qE '^  13-14 +equal +.*inside the interval of B.s bound, 10 to 16' <<<"$out"
    split diff "$b" "$a"
    [ "$code" = 0 ]
    jq '.routes.allreduce[0].max_tokens = 20 | .evidence.routes.allreduce[0].bound_interval = [19, 21]' "$good" >"$b"
    split diff "$a" "$b"
    [ "$code" = 1 ]
    grep -qE '^  13-20 +different +.*no samples' <<<"$out"
    [[ $out == *$'\ndifferent ('* ]]
}

@test "samples beside the profiles say what another tuning costs" {
    samples=tests/fixtures/samples/arfuse.samples.jsonl
    "$program" fit -o "$BATS_TEST_TMPDIR/one.json" $samples
    cp $samples "$BATS_TEST_TMPDIR/one.samples.jsonl"
    # bt's first bound moved to where ll would be far too slow
    for case in "0.5 0" "30 1"; do
        read -r percent want <<<"$case"
        # the same candidates, with bt this much slower in the second run: it takes another route
        jq -c --argjson f "$(python3 -c "print(1 + $percent / 100)")" '
            if .protocol == "bt" and .pattern == "allreduce" then .us |= map(. * $f * 10000 | round / 10000) else . end' \
            $samples >"$BATS_TEST_TMPDIR/two.samples.jsonl"
        rm -f "$BATS_TEST_TMPDIR/two.json"
        "$program" fit -o "$BATS_TEST_TMPDIR/two.json" "$BATS_TEST_TMPDIR/two.samples.jsonl"
        split diff "$BATS_TEST_TMPDIR/one.json" "$BATS_TEST_TMPDIR/two.json"
        echo "$out"
        [ "$code" = "$want" ]
    done
    grep -qE 'different +.*B takes' <<<"$out"
    split diff --tolerance 100 "$BATS_TEST_TMPDIR/one.json" "$BATS_TEST_TMPDIR/two.json"
    [ "$code" = 0 ]
    # samples files may stand in for the profiles that they give
    split diff "$BATS_TEST_TMPDIR/one.samples.jsonl" "$BATS_TEST_TMPDIR/two.samples.jsonl"
    [ "$code" = 1 ]
}

@test "tunes of one shape with other seeds are equal" {
    seeds="2 3"
    [ -z "${ARFUSE_TEST_LONG:-}" ] || seeds="2 3 4 5"
    for seed in 1 $seeds; do
        "${BUILD:-build}/arfuse-tune" --tp 8 --device model:default --hidden 6144 --topk 10 --seed "$seed" \
            --tokens 1-2048*2 --output "$BATS_TEST_TMPDIR/$seed" --quiet >/dev/null
    done
    profile=model-model/tp8_h6144_k10_bf16.json
    for seed in $seeds; do
        split diff "$BATS_TEST_TMPDIR/1/$profile" "$BATS_TEST_TMPDIR/$seed/$profile"
        echo "$out"
        [ "$code" = 0 ]
    done
}

@test "other keys are named and different, other kernel sets compared by protocol" {
    split diff $published/flashinfer/default/tp4_h5120_k{3,6}_bf16.json
    [ "$code" = 1 ]
    [[ $out == *"different keys"*"A: tp_size 4, hidden_size 5120, top_k 3"*"B: tp_size 4, hidden_size 5120, top_k 6"* ]]
    split diff $published/{flashinfer/default,sglang/glm-5.2}/tp8_h6144_k8_bf16.json
    [ "$code" = 1 ]
    grep -qE '^  13-64 +different +bt, ll' <<<"$out"
    grep -qE '^  1-12 +equal +ll' <<<"$out"
}

@test "what only one of them serves is different" {
    jq '.routes.allreduce |= .[:-1] | .evidence.routes.allreduce |= .[:-1]' "$good" >"$b"
    split diff "$a" "$b"
    [ "$code" = 1 ]
    grep -qE 'different +A: [a-z]+, B: nothing' <<<"$out"
}

@test "exit 2 for usage, 3 for files that are no profiles" {
    for arguments in "diff" "diff $good" "diff $good $good $good" "diff --tolerance x $good $good" "diff --tolerance -1 $good $good"; do
        # shellcheck disable=SC2086
        split $arguments
        [ "$code" = 2 ]
        [ -z "$out" ]
    done
    split diff "$good" /nonexistent
    [ "$code" = 3 ]
    [ -z "$out" ]
    [[ $err == "arfuse-profile: /nonexistent: "* ]]
}
