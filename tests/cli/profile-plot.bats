#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile plot, and the recipe of src/cli/README.md from a public table to an engine's file.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    samples=tests/fixtures/samples/arfuse.samples.jsonl
}

split() {
    out=$("$program" "$@" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
}

@test "the script has a line a protocol, a shade a route, a line and a band a bound" {
    split plot --script $samples
    [ "$code" = 0 ]
    "$program" fit -o "$BATS_TEST_TMPDIR/made.json" $samples
    routes=$(jq '[.routes[][]] | length' "$BATS_TEST_TMPDIR/made.json")
    inner=$(jq '[.routes[] | length - 1] | add' "$BATS_TEST_TMPDIR/made.json")
    bands=$(jq '[.evidence.routes[][:-1][] | select(.bound_interval[0] < .bound_interval[1])] | length' "$BATS_TEST_TMPDIR/made.json")
    [ "$(grep -c 'behind fillcolor' <<<"$out")" = "$routes" ]
    [ "$(grep -c '^set arrow' <<<"$out")" = "$inner" ]
    [ "$(grep -c 'front fillcolor' <<<"$out")" = "$bands" ]
    for pattern in allreduce finalize; do
        for protocol in ll bt ht; do
            grep -qF "\$${pattern}_$protocol << EOD" <<<"$out"
        done
    done
    grep -qF '$finalize_separate << EOD' <<<"$out"
    # the fastest tuning of each protocol, failures left out
    split plot --script --pattern allreduce $samples
    [ "$(grep -c '<< EOD' <<<"$out")" -lt 6 ]
    [[ $out != *finalize* ]]
}

@test "a picture is one SVG document, from samples or from a profile beside them" {
    command -v gnuplot >/dev/null || skip "no gnuplot"
    split plot -o "$BATS_TEST_TMPDIR/a.svg" $samples
    [ "$code" = 0 ]
    [ -z "$out$err" ]
    python3 -c 'import sys, xml.dom.minidom as m
root = m.parse(sys.argv[1]).documentElement
assert root.tagName == "svg", root.tagName' "$BATS_TEST_TMPDIR/a.svg"
    grep -q 'microseconds a call' "$BATS_TEST_TMPDIR/a.svg"
    cp $samples "$BATS_TEST_TMPDIR/made.samples.jsonl"
    "$program" fit -o "$BATS_TEST_TMPDIR/made.json" $samples
    "$program" plot "$BATS_TEST_TMPDIR/made.json" | cmp - "$BATS_TEST_TMPDIR/a.svg"
    "$program" plot --samples $samples "$BATS_TEST_TMPDIR/made.json" | cmp - "$BATS_TEST_TMPDIR/a.svg"
}

@test "without gnuplot: a message, exit 1, no file" {
    mkdir "$BATS_TEST_TMPDIR/empty"
    run env PATH="$BATS_TEST_TMPDIR/empty" "$program" plot -o "$BATS_TEST_TMPDIR/none.svg" $samples
    [ "$status" = 1 ]
    [[ $output == *"gnuplot is not installed (Debian: gnuplot-nox); --script prints what it would draw" ]]
    [ ! -e "$BATS_TEST_TMPDIR/none.svg" ]
    # a gnuplot that fails is no picture
    printf '#!/bin/sh\nexit 3\n' >"$BATS_TEST_TMPDIR/empty/gnuplot"
    chmod +x "$BATS_TEST_TMPDIR/empty/gnuplot"
    run env PATH="$BATS_TEST_TMPDIR/empty" "$program" plot -o "$BATS_TEST_TMPDIR/none.svg" $samples
    [ "$status" = 1 ]
    [ ! -e "$BATS_TEST_TMPDIR/none.svg" ]
}

@test "an output that cannot be written is named, not the file that was read" {
    run "$program" plot -o "$BATS_TEST_TMPDIR/absent/a.svg" $samples
    [ "$status" = 1 ]
    [[ $output == "arfuse-profile: $BATS_TEST_TMPDIR/absent/a.svg: cannot create "* ]]
}

@test "samples of another key are not drawn under a profile, nor compared by diff" {
    "$program" fit -o "$BATS_TEST_TMPDIR/mine.json" $samples
    sed '1s/"name": "model"/"name": "other"/' $samples >"$BATS_TEST_TMPDIR/mine.samples.jsonl"
    for verb in "plot -o $BATS_TEST_TMPDIR/none.svg" "diff $BATS_TEST_TMPDIR/mine.json"; do
        run "$program" $verb "$BATS_TEST_TMPDIR/mine.json"
        [ "$status" = 3 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ $output == *"mine.samples.jsonl: samples of "*" on other "*" as $BATS_TEST_TMPDIR/mine.json" ]]
    done
    [ ! -e "$BATS_TEST_TMPDIR/none.svg" ]
}

@test "no samples, no picture; usage errors are exit 2" {
    split plot tests/fixtures/profiles/good/measured.json
    [ "$code" = 3 ]
    [[ $err == *"a picture needs the samples behind the profile: beside it, or by --samples FILE" ]]
    for arguments in "plot" "plot a b" "plot --pattern none a"; do
        # shellcheck disable=SC2086
        split $arguments
        [ "$code" = 2 ]
        [[ $err == "arfuse-profile: "* ]]
    done
}

@test "the recipe of the README runs as it is printed" {
    command -v gnuplot >/dev/null || skip "no gnuplot"
    python3 tests/support/sweep.py --top-k 6 --noise 0.005 --repeat 3 --backends ll,bt0,bt1,ht,unfused >"$BATS_TEST_TMPDIR/sweep.csv"
    # the block of commands, as a reader would paste it into a shell in the project's root
    sed -n '/<!-- recipe -->/,/<!-- end -->/p' src/cli/README.md | sed -n '/^```sh$/,/^```$/p' |
        grep -v '^```' >"$BATS_TEST_TMPDIR/recipe"
    [ "$(grep -c arfuse-profile "$BATS_TEST_TMPDIR/recipe")" -ge 4 ]
    ln -s "$PWD/profiles" "$BATS_TEST_TMPDIR/profiles"
    bin=$(cd "$(dirname "$program")" && pwd)
    (cd "$BATS_TEST_TMPDIR" && PATH=$bin:$PATH bash -eu recipe)
    python3 tests/support/flashinfer_standin.py "$BATS_TEST_TMPDIR/routes.py" "$BATS_TEST_TMPDIR/sweep.json"
    [ -s "$BATS_TEST_TMPDIR/sweep.svg" ]
}
