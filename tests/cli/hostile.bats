#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Output folders, names and an environment that somebody else could have made: no crash, no write
# outside the named folder, one message, the right exit code. Root may do everything, so as root the
# permission tests drop that.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    tune=$PWD/${BUILD:-build}/arfuse-tune
    profile=$PWD/${BUILD:-build}/arfuse-profile
    good=$PWD/tests/fixtures/profiles/good/measured.json
    unset OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK
    shape=(--hidden 64 --topk 2 --tp 2 --device model:default --tokens 1,8 --quiet)
    out=$BATS_TEST_TMPDIR/out
    name=$out/model-model/tp2_h64_k2_bf16
}

# as somebody who may not do everything
plain() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --bounding-set=-all --inh-caps=-all "$@"
    else
        "$@"
    fi
}

one_message() { # PATTERN: the only line on stderr
    [ "$(wc -l <"$BATS_TEST_TMPDIR/err")" -eq 1 ]
    grep -q "^arfuse-[a-z]*: .*$1" "$BATS_TEST_TMPDIR/err"
}

@test "samples that are a link are refused, and what it points to stands" {
    mkdir -p "$out/model-model"
    echo mine >"$BATS_TEST_TMPDIR/precious"
    ln -s "$BATS_TEST_TMPDIR/precious" "$name.samples.jsonl"
    for more in '' --resume; do
        code=0
        "$tune" "${shape[@]}" $more --output "$out" 2>"$BATS_TEST_TMPDIR/err" || code=$?
        [ "$code" -eq 1 ]
        one_message 'is a link'
    done
    [ "$(cat "$BATS_TEST_TMPDIR/precious")" = mine ]
}

@test "so are new samples beside those of an earlier run" {
    "$tune" "${shape[@]}" --output "$out" >/dev/null
    echo mine >"$BATS_TEST_TMPDIR/precious"
    ln -s "$BATS_TEST_TMPDIR/precious" "$name.samples.jsonl.new"
    sum=$(cksum <"$name.samples.jsonl")
    code=0
    "$tune" "${shape[@]}" --output "$out" 2>"$BATS_TEST_TMPDIR/err" || code=$?
    [ "$code" -eq 1 ]
    one_message 'is a link'
    [ "$(cat "$BATS_TEST_TMPDIR/precious")" = mine ]
    [ "$(cksum <"$name.samples.jsonl")" = "$sum" ]
}

@test "a link does not lead out of the folder that was named, which may be one itself" {
    mkdir "$out" "$BATS_TEST_TMPDIR/elsewhere"
    ln -s "$BATS_TEST_TMPDIR/elsewhere" "$out/model-model"
    for target in elsewhere nowhere; do
        ln -sfn "$BATS_TEST_TMPDIR/$target" "$out/model-model"
        code=0
        "$tune" "${shape[@]}" --output "$out" 2>"$BATS_TEST_TMPDIR/err" || code=$?
        [ "$code" -eq 1 ]
        one_message 'model-model: is a link'
    done
    [ -z "$(ls "$BATS_TEST_TMPDIR/elsewhere")" ]
    [ ! -e "$BATS_TEST_TMPDIR/nowhere" ]
    ln -s "$BATS_TEST_TMPDIR/elsewhere" "$BATS_TEST_TMPDIR/link"
    "$tune" "${shape[@]}" --output "$BATS_TEST_TMPDIR/link" >/dev/null
    [ -f "$BATS_TEST_TMPDIR/elsewhere/model-model/tp2_h64_k2_bf16.json" ]
}

@test "samples that are a pipe, a folder or a device do not hang the tuner" {
    mkdir -p "$out/model-model"
    for make in 'mkfifo' 'mkdir'; do
        $make "$name.samples.jsonl"
        code=0
        timeout 20 "$tune" "${shape[@]}" --output "$out" 2>"$BATS_TEST_TMPDIR/err" || code=$?
        [ "$code" -eq 1 ]
        one_message 'samples.jsonl'
        rm -rf "$name.samples.jsonl"
    done
}

@test "a profile that is a link is replaced, not written through" {
    "$tune" "${shape[@]}" --output "$out" >/dev/null
    mv "$name.json" "$BATS_TEST_TMPDIR/other.json"
    sum=$(cksum <"$BATS_TEST_TMPDIR/other.json")
    ln -s "$BATS_TEST_TMPDIR/other.json" "$name.json"
    "$tune" "${shape[@]}" --seed 2 --output "$out" >/dev/null
    [ ! -L "$name.json" ]
    [ "$(cksum <"$BATS_TEST_TMPDIR/other.json")" = "$sum" ]
}

@test "a file that is no profile is not overwritten" {
    mkdir -p "$out/model-model"
    echo mine >"$name.json"
    code=0
    "$tune" "${shape[@]}" --output "$out" 2>"$BATS_TEST_TMPDIR/err" >/dev/null || code=$?
    [ "$code" -eq 3 ]
    one_message 'tp2_h64_k2_bf16.json'
    [ "$(cat "$name.json")" = mine ]
}

@test "folders that may not be written to are named, once" {
    mkdir -m 555 "$out"
    code=0
    plain "$tune" "${shape[@]}" --output "$out" 2>"$BATS_TEST_TMPDIR/err" || code=$?
    [ "$code" -eq 1 ]
    one_message 'out: cannot make files in this folder: Permission denied'
    [ -z "$(ls "$out")" ]
}

@test "samples that may not be read or written are named, and stay as they are" {
    "$tune" "${shape[@]}" --output "$out" >/dev/null
    rm "$name.json"
    sum=$(cksum <"$name.samples.jsonl")
    for mode in 000 444; do
        chmod "$mode" "$name.samples.jsonl"
        for more in '' --resume; do
            code=0
            plain "$tune" "${shape[@]}" $more --output "$out" 2>"$BATS_TEST_TMPDIR/err" || code=$?
            [ "$code" -eq 1 ]
            one_message 'samples.jsonl: cannot open: Permission denied'
        done
    done
    [ "$(cksum <"$name.samples.jsonl")" = "$sum" ]
}

@test "a profile that may not be read is exit 3" {
    cp "$good" "$BATS_TEST_TMPDIR/secret.json"
    chmod 000 "$BATS_TEST_TMPDIR/secret.json"
    code=0
    plain "$profile" check "$BATS_TEST_TMPDIR/secret.json" 2>"$BATS_TEST_TMPDIR/err" || code=$?
    [ "$code" -eq 3 ]
    one_message 'secret.json: cannot open: Permission denied'
}

@test "names with odd characters are names" {
    cd "$BATS_TEST_TMPDIR"
    for odd in 'a b' '%s%n' '$(touch stray)' '`touch stray`' 'a;touch stray' "quote'\"" $'\xff\xfe' \
        '..dots' 'ä' "$(printf 'x%.0s' {1..200})"; do
        "$tune" "${shape[@]}" --output "$odd" >/dev/null
        [ -f "$odd/model-model/tp2_h64_k2_bf16.json" ]
        "$profile" show "./$odd/model-model/tp2_h64_k2_bf16.json" >/dev/null
        rm -r "./$odd"
    done
    "$tune" "${shape[@]}" --output=-dash >/dev/null
    [ -f ./-dash/model-model/tp2_h64_k2_bf16.json ]
    [ ! -e stray ]
}

@test "a picture runs nothing that a device's name holds" {
    command -v gnuplot >/dev/null || skip "no gnuplot"
    cd "$BATS_TEST_TMPDIR"
    "$tune" "${shape[@]}" --output "$out" >/dev/null
    for odd in '`touch stray`' '$(touch stray)' '@stray' "x' . system('touch stray') . '" \
        'x" . system("touch stray") . "' "x\\" "it's"; do
        jq -c --arg name "$odd" 'if .device then .device.name = $name else . end' "$name.samples.jsonl" >odd.samples.jsonl
        "$profile" plot -o odd.svg odd.samples.jsonl
        python3 -c 'import sys, xml.dom.minidom as m
text = "".join(n.firstChild.data for n in m.parse("odd.svg").getElementsByTagName("text") if n.firstChild)
assert sys.argv[1] in text, text' "$odd"
        [ ! -e stray ]
    done
}

@test "a name longer than a path can be is refused" {
    long=$(printf 'x%.0s' {1..5000})
    code=0
    "$tune" "${shape[@]}" --output "$BATS_TEST_TMPDIR/$long" 2>"$BATS_TEST_TMPDIR/err" || code=$?
    [ "$code" -eq 1 ] || [ "$code" -eq 2 ]
    one_message 'path\|name'
}

@test "an environment full of rubbish changes nothing" {
    rubbish=$'%s%n\x01\xff;touch stray'$(printf 'x%.0s' {1..9000})
    "$tune" "${shape[@]}" --output "$out" >/dev/null
    cp "$name.json" "$BATS_TEST_TMPDIR/first.json"
    for variable in HOME TMPDIR XDG_CONFIG_HOME XDG_RUNTIME_DIR XDG_CACHE_HOME LC_ALL LANG TZ \
        ARFUSE_PROFILE ARFUSE_PROFILE_PATH ARFUSE_SOCKET_FOLDER ARFUSE_ROUTES ARFUSE_UNKNOWN; do
        env "$variable=$rubbish" "$tune" "${shape[@]}" --output "$out" >/dev/null
        cmp "$name.json" "$BATS_TEST_TMPDIR/first.json"
        env "$variable=$rubbish" "$profile" check "$name.json"
    done
    env -i "$tune" "${shape[@]}" --output "$out" >/dev/null
    cmp "$name.json" "$BATS_TEST_TMPDIR/first.json"
}

@test "nor does it to a program of the library, or the program says what is wrong" {
    "$tune" --hidden 64 --topk 2 --tp 2 --device host --tokens 1,3 --budget 3 --quiet --output "$out" >/dev/null 2>&1
    made=$(ls "$out"/*/*.json)
    cd "$BATS_TEST_TMPDIR"
    run_profile=${tune%/*}/examples/run_profile
    "$run_profile" "$made" 2 64 2 >first
    rubbish=$'%s%n\x01\xff;touch stray'$(printf 'x%.0s' {1..9000})
    for value in "$rubbish" '' -1 ':' /dev/zero . 99999999999999999999; do
        for variable in HOME XDG_CONFIG_HOME XDG_CACHE_HOME XDG_RUNTIME_DIR ARFUSE_PROFILE_PATH \
            ARFUSE_PROFILE ARFUSE_ROUTES ARFUSE_SOCKET_FOLDER ARFUSE_UNKNOWN; do
            code=0
            env "$variable=$value" timeout 20 "$run_profile" "$made" 2 64 2 >said 2>err || code=$?
            echo "$variable=${value:0:20}: $code"
            case $code in
            0) cmp first said ;;
            2) grep -q "^run_profile: .*$variable" err ;;
            *) false ;;
            esac
        done
    done
    [ ! -e stray ]
}

@test "a launcher's variables that are rubbish do not make ranks" {
    for value in -1 x 1e9 99999999999999999999 '' ' 1'; do
        code=0
        OMPI_COMM_WORLD_RANK=$value OMPI_COMM_WORLD_SIZE=$value timeout 20 "$tune" "${shape[@]}" \
            --output "$out" >/dev/null || code=$?
        [ "$code" -eq 0 ]
    done
}

@test "an input file that is missing, a folder or junk is exit 3, whatever it was to hold" {
    cd "$BATS_TEST_TMPDIR"
    "$tune" "${shape[@]}" --output made >/dev/null 2>&1
    samples=$(echo made/*/*.samples.jsonl)
    mkdir folder
    echo junk >junk
    cp junk junk.samples.jsonl
    count=0
    while read -r program arguments; do
        for file in missing folder junk; do
            code=0
            # shellcheck disable=SC2086 # words of a command line
            "${!program}" ${arguments//FILE/$file} >out 2>err || code=$?
            [ "$code $(grep -c "$file" err | sed 's/[1-9].*/some/')" = "3 some" ] || { echo "$program ${arguments//FILE/$file}: exit $code"; cat err; false; }
            count=$((count + 1))
        done
    done <<LIST
profile show FILE
profile explain --tokens 1 FILE
profile check FILE
profile diff FILE ${samples/.samples.jsonl/.json}
profile merge FILE $samples
profile fit FILE
profile fit --weights FILE $samples
profile plot FILE
profile plot --samples FILE ${samples/.samples.jsonl/.json}
profile retarget --hidden 512 FILE
profile import --from csv FILE
profile export --to csv FILE
tune ${shape[@]} --weights FILE
tune ${shape[@]} --dry-run --weights FILE
tune ${shape[@]} --base FILE.json
tune --check FILE --device model:default
tune --ab FILE,unfused --device model:default
tune --hidden 512 --device model:FILE
LIST
    [ "$count" -eq 54 ]
}
