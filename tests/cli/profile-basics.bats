#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile as a user calls it: streams, exit codes, one voice.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    good=tests/fixtures/profiles/good
    bad=tests/fixtures/profiles/bad
}

# runs the program, keeps the streams apart
split() {
    out=$("$program" "$@" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
}

@test "help lists every verb, on stdout, with exit 0" {
    split --help
    [ "$code" = 0 ]
    [ -z "$err" ]
    for verb in show explain check; do
        [[ $out == *"  $verb "* ]]
        split "$verb" --help
        [ "$code" = 0 ]
        [ -z "$err" ]
        [[ $out == "Usage: arfuse-profile"* ]]
        split --help
    done
}

@test "version names the program" {
    split --version
    [ "$code" = 0 ]
    [[ $out =~ ^arfuse-profile\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "usage errors are exit 2, on stderr, in the program's name" {
    usage() {
        split "$@"
        echo "$*: $code: $err"
        [ "$code" = 2 ]
        [ -z "$out" ]
        [[ $err == "arfuse-profile: "* ]]
    }
    usage
    usage nope
    usage --nope
    usage show
    usage show a b
    usage show --nope a
    usage check
    usage explain "$good/host.json"
    usage explain --tokens 4
    usage explain --tokens 4 a b
    usage explain --tokens -1 "$good/host.json"
    usage explain --tokens 4x "$good/host.json"
    usage explain --tokens 99999999999999999999 "$good/host.json"
    usage explain --tokens 4 --pattern none "$good/host.json"
}

@test "an option that is given twice is refused, whichever it is" {
    options=0
    for verb in show explain check diff merge fit plot import export retarget; do
        for option in $("$program" $verb --help | sed -nE 's/^ {1,8}(-[A-Za-z?], )?(--[a-z][a-z-]*=?).*/\2/p'); do
            case $option in --help | --usage | --version) continue ;; esac
            twice=()
            for value in 8 csv allreduce warm fixed nvlink first scaled 9.0 FILE; do # whatever its values are
                given=$option
                [[ $option != *= ]] || given+=$value
                split $verb "$given" "$given" a b
                [ "$code" = 2 ]
                [[ $err != *"${option%=} is given twice"* ]] || twice+=("$value")
            done
            [ ${#twice[@]} -gt 0 ] || { echo "$verb $option: $err"; false; }
            options=$((options + 1))
        done
    done
    [ $options -gt 30 ]
}

@test "a mistyped verb is told what it is near to" {
    split shw
    [ "$code" = 2 ]
    [[ $err == "arfuse-profile: 'shw' is no verb; did you mean show?"* ]]
    split retargt
    [[ $err == *'did you mean retarget?'* ]]
    split nope
    [[ $err == *"'nope' is no verb, expected one that --help lists"* ]]
}

@test "messages begin the same whatever path started the program" {
    ln -s "$PWD/$program" "$BATS_TEST_TMPDIR/other-name"
    run "$BATS_TEST_TMPDIR/other-name" nope
    [ "$status" = 2 ]
    [[ $output == "arfuse-profile: 'nope'"* ]]
}

@test "a stdout that cannot be written is exit 1" {
    [ -e /dev/full ] || skip "no /dev/full"
    run bash -c "'$program' show $good/host.json 2>&1 >/dev/full"
    [ "$status" = 1 ]
    [[ $output == "arfuse-profile: cannot write to stdout"* ]]
}

@test "check accepts every good profile" {
    split check "$good"/*.json
    [ "$code" = 0 ]
    [ "$(grep -c ': ok, ' <<<"$out")" = "$(ls "$good"/*.json | wc -l)" ]
    # unknown members of evidence are worth a note, no more
    [[ $err == *"retargeted_unknown_evidence.json: note: evidence has members"*'"retargeted_from"'* ]]
}

@test "check refuses every bad profile with file, place and expectation" {
    split check "$bad"/*.json
    [ "$code" = 3 ]
    [ -z "$out" ]
    wrong=0
    while IFS=$'\t' read -r name seen message; do
        grep -qxF "arfuse-profile: $bad/$name.json: $message" <<<"$err" || {
            echo "$name ($seen): $message"
            wrong=1
        }
        run "$program" check "$bad/$name.json"
        [ "$status" = 3 ] || wrong=1
    done <tests/fixtures/profiles/bad.tsv
    [ "$wrong" = 0 ]
    [ "$(wc -l <<<"$err")" = "$(wc -l <tests/fixtures/profiles/bad.tsv)" ]
    [ "$(wc -l <tests/fixtures/profiles/bad.tsv)" -ge 60 ]
}

@test "one bad file among good ones is exit 3, and the others are still judged" {
    split check "$good/host.json" "$bad/tp_size_0.json" "$good/dense.json"
    [ "$code" = 3 ]
    [ "$(grep -c ': ok, ' <<<"$out")" = 2 ]
    [ "$(wc -l <<<"$err")" = 1 ]
}

@test "every verb refuses a bad file with exit 3" {
    for verb in show "explain --tokens 4" check; do
        split $verb "$bad/cut_in_half.json"
        [ "$code" = 3 ]
        [ -z "$out" ]
        [[ $err == "arfuse-profile: $bad/cut_in_half.json: line 6, column 90: "* ]]
        split $verb /nonexistent
        [ "$code" = 3 ]
        [[ $err == "arfuse-profile: /nonexistent: cannot open: No such file or directory" ]]
        split $verb tests
        [ "$code" = 3 ]
        [[ $err == *"is a folder, expected a regular file" ]]
    done
}

@test "samples for a profile, or a profile for samples, are said to be so" {
    samples=tests/fixtures/samples/arfuse.samples.jsonl
    for verb in check show "explain --tokens 4" "retarget --tp 4"; do
        # shellcheck disable=SC2086
        split $verb $samples
        echo "$verb: $err"
        [ "$code" = 3 ]
        [ "$err" = "arfuse-profile: $samples: is a file of samples, expected a profile; fit makes one of it" ]
    done
    for verb in fit "merge $samples"; do
        # shellcheck disable=SC2086
        split $verb $good/measured.json
        [ "$code" = 3 ]
        [[ $err == "arfuse-profile: $good/measured.json: is a profile, expected samples "* ]]
    done
}

@test "what cannot be fitted is named" {
    head -n 1 tests/fixtures/samples/arfuse.samples.jsonl >"$BATS_TEST_TMPDIR/none"
    split fit "$BATS_TEST_TMPDIR/none"
    [ "$code" = 1 ]
    [ "$err" = "arfuse-profile: $BATS_TEST_TMPDIR/none: there is no sample to fit" ]
    split fit "$BATS_TEST_TMPDIR/none" "$BATS_TEST_TMPDIR/none"
    [ "$code" = 1 ]
    [ "$err" = "arfuse-profile: $BATS_TEST_TMPDIR/none and 1 more: there is no sample to fit" ]
}

@test "no verb replaces a file of another kind, nor a folder" {
    samples=tests/fixtures/samples/arfuse.samples.jsonl
    dir=$BATS_TEST_TMPDIR
    published=profiles/published/flashinfer/default/tp4_h5120_k6_bf16.json
    "$program" export --to csv $samples >"$dir/table.csv"
    verbs=("fit $samples" "merge $samples $samples" "import --from csv $dir/table.csv" "export --to csv $samples"
        "export --to csv $good/measured.json" "export --to markdown $good/measured.json"
        "export --to flashinfer $published" "plot --script $samples" "retarget --tp 4 $good/measured.json")
    ! command -v gnuplot >/dev/null || verbs+=("plot $samples")
    for verb in "${verbs[@]}"; do
        for there in "a letter" ""; do
            echo -n "$there" >"$dir/file"
            # shellcheck disable=SC2086
            split $verb -o "$dir/file"
            echo "$verb: $code $err"
            [ "$code" = 3 ]
            [[ $err == *"not replaced"*"move it away"* ]]
            [ "$(cat "$dir/file")" = "$there" ]
        done
        # shellcheck disable=SC2086
        split $verb -o "$dir"
        [ "$code" = 3 ]
        [[ $err == *"$dir: is a folder, expected the name of a file to write" ]]
        # its own kind it does replace
        rm "$dir/file"
        for _ in 1 2; do
            # shellcheck disable=SC2086
            split $verb -o "$dir/file"
            echo "$verb: $code $err"
            [ "$code" = 0 ]
        done
    done
}
