#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile merge: partial tunings of one shape, or a refusal that names what differs.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    whole=tests/fixtures/samples/arfuse.samples.jsonl
    dir=$BATS_TEST_TMPDIR
    # a day for small token counts, a day for large ones, one point in both
    { head -n 1 $whole && tail -n +2 $whole | grep -E '"tokens": (1|16|64),'; } >"$dir/small"
    { head -n 1 $whole && tail -n +2 $whole | grep -E '"tokens": (512|2048),'; } >"$dir/large"
}

split() {
    out=$("$program" "$@" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
}

# the lines of points, in any order
points() {
    tail -n +2 | sort
}

@test "disjoint parts: their union, and the fit of the whole" {
    split merge "$dir/small" "$dir/large"
    [ "$code" = 0 ]
    [ -z "$err" ]
    cmp <(points <<<"$out") <(points <$whole)
    [ "$(head -n 1 <<<"$out" | jq -r .tool)" = "$("$program" --version | tr -s ' ') merge of 2" ]
    cmp <("$program" fit "$dir/small" "$dir/large" | jq .routes) <("$program" fit $whole | jq .routes)
    split merge -o "$dir/made" "$dir/small" "$dir/large"
    [ "$code" = 0 ]
    [ -z "$out" ]
    cmp <(points <"$dir/made") <(points <$whole)
}

@test "equal duplicates are no conflict" {
    split merge $whole "$dir/small" $whole
    [ "$code" = 0 ]
    cmp <(points <<<"$out") <(points <$whole)
    [[ $(head -n 1 <<<"$out" | jq -r .tool) == *" merge of 3" ]]
}

@test "what two files time differently is listed and refused, or resolved by rule and recorded" {
    jq -c 'if .us and .pattern == "allreduce" and .protocol == "ll" and .tokens == 16 then .us = [9.5, 9.25] else . end' $whole >"$dir/other"
    old=$(jq -c 'select(.pattern == "allreduce" and .protocol == "ll" and .tokens == 16) | .us' $whole)
    split merge $whole "$dir/other"
    [ "$code" = 3 ]
    [ -z "$out" ]
    [[ $err == *"allreduce 16 ll elements_per_thread="*" us in $whole, 9.38 us in $dir/other"* ]]
    [[ $err == *"1 point is timed differently by two files; say which counts: --duplicates first, last, faster or pool"* ]]
    while read -r rule want; do
        split merge --duplicates "$rule" $whole "$dir/other"
        [ "$code" = 0 ]
        got=$(jq -c 'select(.pattern == "allreduce" and .protocol == "ll" and .tokens == 16) | .us' <<<"$out")
        [ "$got" = "$want" ] || { echo "$rule: $got, expected $want"; false; }
        [[ $(head -n 1 <<<"$out" | jq -r .tool) == *" merge of 2, 1 by $rule" ]]
        [[ $err == *"note: 1 point in two files resolved by rule '$rule'" ]]
        [[ $("$program" fit --duplicates "$rule" $whole "$dir/other" 2>/dev/null | jq -r .evidence.tool) == *"1 by $rule" ]]
    done <<RULES
first $old
last [9.5,9.25]
faster $old
pool ${old%]},9.5,9.25]
RULES
    split fit $whole "$dir/other"
    [ "$code" = 3 ]
    [ -z "$out" ]
}

@test "rounds that stand in two files count once, and that is said" {
    split merge $whole $whole
    points=$(grep '"us": ' <<<"$out" | grep -vc '"outcome"')
    [ "$err" = "arfuse-profile: note: $points points with the same rounds in two files, which count once" ]
    jq -c 'if .us then .us |= map(. + 0.5) else . end' $whole >"$dir/other"
    "$program" merge --duplicates pool $whole "$dir/other" >"$dir/both" 2>/dev/null
    # a copy behind the pooled one, or the pooled one behind its parts, adds nothing
    for files in "$whole $dir/other $whole" "$dir/other $dir/both $whole" "$dir/both $dir/other"; do
        # shellcheck disable=SC2086
        split merge --duplicates pool $files
        [ "$code" = 0 ]
        [[ $err == *"which count once"* ]]
        cmp <(points <<<"$out") <(points <"$dir/both") || { echo "$files" && false; }
    done
}

@test "pooled rounds keep the slower clock, and what held either down" {
    jq -c 'if .us then . + {clock_mhz: 1800, throttle: "power"} else . end' $whole >"$dir/fast"
    jq -c 'if .us then .us |= map(. + 0.5) | . + {clock_mhz: 1200, throttle: "heat, power"} else . end' $whole >"$dir/slow"
    for files in "$dir/fast $dir/slow" "$dir/slow $dir/fast" "$whole $dir/slow"; do
        # shellcheck disable=SC2086
        split merge --duplicates pool $files
        [ "$code" = 0 ]
        clocks=$(jq -c 'select(.us and .outcome == null) | [.clock_mhz, (.throttle | split(", ") | sort)]' <<<"$out" | sort -u)
        [ "$clocks" = '[1200,["heat","power"]]' ] || { echo "$files: $clocks"; false; }
    done
}

@test "a wrong result wins under every rule, a failure under pool" {
    # the same candidate timed by one file and wrong in the other
    jq -c 'if .outcome == "wrong" then del(.outcome, .reason) | .calls = 20 | .us = [1.5] else . end' $whole >"$dir/right"
    for rule in first last faster pool; do
        for order in "$whole $dir/right" "$dir/right $whole"; do
            # shellcheck disable=SC2086
            split merge --duplicates $rule $order
            [ "$code" = 0 ]
            [ "$(grep -c '"outcome": "wrong"' <<<"$out")" = 1 ] || { echo "$rule $order"; false; }
        done
    done
    jq -c 'if .outcome == "failed" then del(.outcome, .reason) | .calls = 20 | .us = [1.5] else . end' $whole >"$dir/ran"
    split merge --duplicates pool "$dir/ran" $whole
    [ "$(grep -c '"outcome": "failed"' <<<"$out")" = 1 ]
    split merge --duplicates faster $whole "$dir/ran"
    [ "$(grep -c '"outcome": "failed"' <<<"$out")" = 0 ]
}

@test "another device, kernel set, shape, policy or tuning version is refused by name" {
    refused() { # JQ MESSAGE
        { head -n 1 $whole | jq -c "$1" && tail -n +2 "$dir/large"; } >"$dir/odd"
        split merge "$dir/small" "$dir/odd"
        echo "$err"
        [ "$code" = 3 ]
        [ -z "$out" ]
        [[ $err == *"$2"* ]]
        split fit "$dir/small" "$dir/odd"
        [ "$code" = 3 ]
    }
    refused '.device.name = "Another model"' "on Another model"
    refused '.device.sm_count = 132' "132 SMs"
    refused '.device.nodes = 2' "2 nodes"
    refused '.shape.top_k = 12' "top_k 12"
    refused '.shape.residual = false' "expected those of"
    refused '.policy = "decode"' "samples of policy decode, expected warm as in $dir/small"
    refused '.kernels.bt = 1' ": \$.kernels.bt: 1, expected 2 (the kernels here have version 2 of bt's tuning; measure again with arfuse-tune)"
    # a header without samples, so that no plan of it is judged
    {
        head -n 1 $whole | jq -c '.kernels = {set: "flashinfer", ll: 1, bt: 1, ht: 1}'
    } >"$dir/odd"
    split merge "$dir/small" "$dir/odd"
    [ "$code" = 3 ]
    [[ $err == *"samples of kernel set flashinfer, expected arfuse"* ]]
    # the result of nothing is nothing: no file is made
    split merge -o "$dir/none" "$dir/small" "$dir/odd"
    [ ! -e "$dir/none" ]
}

@test "another driver or other kernel sources are said once, and no longer claimed" {
    { head -n 1 $whole | jq -c '.driver = "580.1" | .source_digest = "0123456789abcdef"' && tail -n +2 "$dir/large"; } >"$dir/newer"
    split merge "$dir/small" "$dir/newer" "$dir/newer"
    [ "$code" = 0 ]
    [[ $err == *"note: driver '580.1', 'model' in the files before"* ]]
    [ "$(grep -c "note: driver\|note: kernel sources" <<<"$err")" = 2 ]
    [ "$(head -n 1 <<<"$out" | jq -r '.driver + " " + .source_digest')" = "several several" ]
}

@test "too much for a samples file is refused, and usage errors are exit 2" {
    python3 - $whole "$dir" <<'MAKE'
import json, sys
lines = open(sys.argv[1]).read().splitlines()
row = json.loads(lines[1])
for part in (0, 1):
    with open("%s/big%d" % (sys.argv[2], part), "w") as f:
        f.write(lines[0] + "\n")
        for i in range(800):
            row["tokens"] = 1 + i + 800 * part
            row["us"] = [4.1234] * 200
            f.write(json.dumps(row) + "\n")
MAKE
    split merge "$dir/big0" "$dir/big1"
    [ "$code" = 1 ]
    [ -z "$out" ]
    [[ $err == *"bytes of samples, expected at most 2097152"* ]]
    for arguments in "merge" "merge $whole" "merge --duplicates none $whole $whole"; do
        # shellcheck disable=SC2086
        split $arguments
        [ "$code" = 2 ]
        [[ $err == "arfuse-profile: "* ]]
    done
}

@test "the file is the old one or the new one" {
    # a writer that cannot write leaves what was there
    "$program" merge -o "$dir/made" "$dir/small" "$dir/large"
    cp "$dir/made" "$dir/before"
    run bash -c "ulimit -f 1; trap '' XFSZ; '$program' merge -o '$dir/made' '$dir/large' '$dir/small'"
    [ "$status" = 1 ]
    cmp "$dir/made" "$dir/before"
    [ "$(find "$dir" -newer "$dir/before" -name '*made*' | wc -l)" = 0 ]
}
