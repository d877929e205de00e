#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile export: other programs take it, and every bound comes back.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    command -v python3 >/dev/null || skip "no python3"
    program=${BUILD:-build}/arfuse-profile
    standin=tests/support/flashinfer_standin.py
    published=profiles/published
    shape=tp8_h8192_k10_bf16.json
}

split() {
    out=$("$program" "$@" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
}

@test "every published configuration is accepted by the public rules, bounds and tunings equal" {
    count=0
    while read -r file; do
        hints=()
        [[ $file == */flashinfer/* ]] || hints=(--as-hints)
        "$program" export --to flashinfer "${hints[@]}" -o "$BATS_TEST_TMPDIR/made.py" "$file"
        python3 "$standin" "$BATS_TEST_TMPDIR/made.py" "$file" || { echo "$file"; false; }
        count=$((count + 1))
    done < <(find $published -name '*.json')
    [ "$count" -ge 50 ]
}

@test "shapes go into one configuration, the same shape twice does not" {
    files=($published/flashinfer/default/*.json)
    "$program" export --to flashinfer -o "$BATS_TEST_TMPDIR/made.py" "${files[@]}"
    python3 "$standin" "$BATS_TEST_TMPDIR/made.py" "${files[@]}"
    split export --to flashinfer $published/flashinfer/{bt-only,ll-only}/$shape
    [ "$code" = 3 ]
    [[ $err == *"expected each shape once" ]]
    split export --to flashinfer $published/flashinfer/{default,ll-only}/$shape
    [ "$code" = 3 ]
    [[ $err == *"rms_norm differs"* ]]
}

@test "the stand-in refuses what the public classes refuse" {
    "$program" export --to flashinfer -o "$BATS_TEST_TMPDIR/good.py" $published/flashinfer/default/$shape
    for change in 's/(23, 48, 703, None)/(23, 23, 703, None)/' 's/(23, 48, 703, None)/(23, None, 703, 800)/' \
        's/(23, 48, 703, None)/(23, 48, 703)/' 's/LLFinalizeTuning(/LLAllReduceTuning(/' \
        's/stages=6/stage=6/' 's/(23, 48, 703, None)/(24, 48, 703, None)/' 's/hidden_size=8192/hidden_size=8191/'; do
        sed "$change" "$BATS_TEST_TMPDIR/good.py" >"$BATS_TEST_TMPDIR/bad.py"
        run cmp -s "$BATS_TEST_TMPDIR/good.py" "$BATS_TEST_TMPDIR/bad.py"
        [ "$status" -eq 1 ]
        run python3 "$standin" "$BATS_TEST_TMPDIR/bad.py" $published/flashinfer/default/$shape
        echo "$change: $status"
        [ "$status" != 0 ]
    done
}

@test "another kernel set's numbers are written as hints or not at all" {
    split export --to flashinfer $published/sglang/glm-5.2/tp8_h6144_k8_bf16.json
    [ "$code" = 3 ]
    [ -z "$out" ]
    [[ $err == *"measurements of kernel set sglang, expected flashinfer"*"--as-hints"* ]]
    split export --to flashinfer --as-hints $published/sglang/glm-5.2/tp8_h6144_k8_bf16.json
    [ "$code" = 0 ]
    [[ $out == *"HINTS"*"kernel set sglang"* ]]
    [ "$(sed -n '/^#/!q; 3,$p' <<<"$out" | grep -cv '^# $\|^#   \|^# [^ ]\|^#$')" -eq 0 ] # all as far in
    [[ $err == "arfuse-profile: note: written as hints"* ]]
    # arfuse's own: in the public terms where they are legal there
    split export --to flashinfer --as-hints tests/fixtures/samples/arfuse.samples.jsonl
    [ "$code" = 0 ]
    [[ $out == *"kernel set arfuse"*"LLFinalizeTuning(elements_per_thread=4, threads=128, prefetch_group=10, "* ]]
    # ht's reduction needs the tail that only arfuse's kernels have; with one warp it does not
    [[ $out == *"legal here: reduction_warps 2: "*"KernelTarget(ProtocolKind.HT, tp8_h6144_k10_allreduce_2_ht)"* ]]
    sed 's/"reduction_warps": 2, "shards": 8/"reduction_warps": 1, "shards": 8/' tests/fixtures/samples/arfuse.samples.jsonl >"$BATS_TEST_TMPDIR/one.jsonl"
    split export --to flashinfer --as-hints "$BATS_TEST_TMPDIR/one.jsonl"
    [[ $out == *"persistent_ctas=None, consumer_threads=192, vectors_per_thread=4, stages=2, reduction_warps=1, "* ]]
    # the host has nothing to hint at, and unfused has no public name
    split export --to flashinfer --as-hints tests/fixtures/profiles/good/host.json
    [ "$code" = 3 ]
    [[ $err == *"runs on no GPU"* ]]
    jq '.routes.finalize |= map(select(.finalize == null)) | del(.evidence.routes) | .routes.allreduce[-1] += {protocol: "unfused", tuning: {rms_threads: 512}}' tests/fixtures/profiles/good/measured.json >"$BATS_TEST_TMPDIR/u.json"
    "$program" check "$BATS_TEST_TMPDIR/u.json"
    split export --to flashinfer --as-hints "$BATS_TEST_TMPDIR/u.json"
    [ "$code" = 3 ]
    [ -z "$out" ]
    [[ $err == *"routes.allreduce["*"] is unfused, which the public configuration cannot name, expected ll, bt or ht" ]]
}

@test "what a profile does not know is asked for, not guessed" {
    split export --to flashinfer $published/flashinfer/ht-only/tp8_h3584_k16_bf16.json
    [ "$code" = 0 ]
    [[ $out == *"def config("*"tp8_h3584_k16_finalize_0_ht,"* ]]
    [[ $out != *"HTFinalizeTuning("* ]]
    split export --to flashinfer --as-hints $published/tokenspeed/k3-first-half/*.json
    [[ $out == *"tp8_h3584_k16_finalize_below_33,"* ]]
    [[ $out == *"tp8_h3584_k16_allreduce_routes,"* ]]
    [[ $out == *"not legal here: "* ]]
}

@test "a table of routes keeps every bound of every profile, there and back" {
    while read -r file; do
        "$program" export --to csv -o "$BATS_TEST_TMPDIR/routes.csv" "$file"
        "$program" import --from csv -o "$BATS_TEST_TMPDIR/back.json" "$BATS_TEST_TMPDIR/routes.csv" || {
            cat "$BATS_TEST_TMPDIR/routes.csv"
            false
        }
        # what the evidence has beyond the members that this version knows stays behind
        known='[.evidence.routes // {} | to_entries[] | {key, value: [.value[]
                | select(has("bound_interval") or has("runner_up") or has("margin"))]} | select(.value != [])]'
        for part in .routes .shape .device .kernels.set .kernels.variant .numerics .evidence.method "$known"; do
            [ "$(jq -S "$part" "$file")" = "$(jq -S "$part" "$BATS_TEST_TMPDIR/back.json")" ] || {
                echo "$file: $part"
                jq -S "$part" "$file" | diff - <(jq -S "$part" "$BATS_TEST_TMPDIR/back.json")
                false
            }
        done
        rm "$BATS_TEST_TMPDIR/back.json"
    done < <(find $published tests/fixtures/profiles/good -name '*.json')
}

@test "one row a route, the variables first, one header for all files" {
    split export --to csv $published/flashinfer/default/tp8_h{5120_k3,5120_k6}_bf16.json
    [ "$code" = 0 ]
    [ "$(grep -c ^format, <<<"$out")" = 1 ]
    [[ $(head -n 1 <<<"$out") == "format,pattern,tp_size,hidden_size,top_k,dtype,"*",min_tokens,max_tokens,protocol,"* ]]
    routes=$(jq -s '[.[].routes[][]] | length' $published/flashinfer/default/tp8_h{5120_k3,5120_k6}_bf16.json)
    [ "$(wc -l <<<"$out")" = $((routes + 1)) ]
    python3 -c 'import csv, sys
rows = list(csv.DictReader(sys.stdin))
assert all(r["format"] == "arfuse-routes-csv-1" for r in rows)' <<<"$out"
}

@test "markdown has a table a pattern and a line a route" {
    file=$published/flashinfer/default/$shape
    split export --to markdown $file
    [ "$code" = 0 ]
    [ "$(grep -c '^|---' <<<"$out")" = 2 ]
    [ "$(grep -cE '^\| [0-9]' <<<"$out")" = "$(jq '[.routes[][]] | length' $file)" ]
    grep -qF '| 49-703 | bt, ' <<<"$out"
    # every line of a table has the same number of cells
    [ "$(grep '^|' <<<"$out" | tr -cd '|\n' | sort -u | wc -l)" = 1 ]
}

@test "usage errors are exit 2, files that cannot be read exit 3" {
    for arguments in "" "--to csv" "--to yaml $published/flashinfer/default/$shape" "$published/flashinfer/default/$shape"; do
        # shellcheck disable=SC2086
        split export $arguments
        [ "$code" = 2 ]
        [ -z "$out" ]
        [[ $err == "arfuse-profile: "* ]]
    done
    for to in flashinfer csv markdown; do
        split export --to $to /nonexistent
        [ "$code" = 3 ]
        [ -z "$out" ]
    done
}
