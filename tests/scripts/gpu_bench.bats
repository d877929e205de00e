#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# gpu_bench without a GPU: on the model every part of it runs and every kind of verdict comes about,
# on the host device with real times, on a stand-in for libcuda with the costs of the host.
# shellcheck disable=SC2154 # status and output are bats'

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    export bench=$PWD/${BUILD:-build}/tests/gpu_bench
    "${BUILD:-build}/arfuse-tune" --hidden 6144 --topk 10 --tp 8 --device model:default --tokens 1-8192*2 \
        --quiet --output "$BATS_FILE_TMPDIR/profiles" >/dev/null
    profile=$(find "$BATS_FILE_TMPDIR/profiles" -name '*.json')
    export profile
    local code=0
    "$bench" --device model:default --profile "$profile" >"$BATS_FILE_TMPDIR/table" 2>"$BATS_FILE_TMPDIR/err" || code=$?
    echo "$code" >"$BATS_FILE_TMPDIR/code"
}

setup() { cd "$BATS_TEST_DIRNAME/../.." || exit 1; }
on_model() { run --separate-stderr "$bench" --device model:default --quiet "$@"; }
# The verdict of a mark, by the beginning of its name.
verdict() { sed -nE "s/^mark +([A-Za-z ]*[a-zA-Z])  +$1.*/\1/p" <<<"$output"; }

@test "a tuned profile: both patterns over the ladder, every mark that the model has is held" {
    output=$(cat "$BATS_FILE_TMPDIR/table")
    echo "$output"
    cat "$BATS_FILE_TMPDIR/err"
    [ "$(cat "$BATS_FILE_TMPDIR/code")" -eq 0 ]
    [ "$(grep -cE '^(allreduce|finalize) +[0-9]+ ' <<<"$output")" -eq 28 ]
    [ "$(grep -cE '^allreduce +4096 +- +- +[0-9.]+ +[0-9.]+ +- +[0-9.]+ ht ' <<<"$output")" -eq 1 ]
    [ "$(verdict 'allreduce: routed over unfused')" = held ]
    [ "$(verdict 'finalize: routed over separate')" = held ]
    [ "$(verdict 'finalize, 1 to 16 tokens')" = held ]
    [ "$(verdict 'll over its floor')" = 'not here' ]
    [ "$(verdict 'allreduce, 1 to 2048 tokens: routed over the NCCL composition')" = 'not here' ]
    [ "$(grep -cE '^nccl (allreduce|finalize) +[0-9]+( +[0-9.]+){5}$' <<<"$output")" -eq 28 ]
    [[ $output == *"routes: $profile;"* ]]
}

@test "at least fifty token counts by chance, each bound and the next are timed beside the ladder" {
    on_model --profile "$profile" --csv
    python3 - "$profile" <<END
import csv, io, json, sys
rows = list(csv.DictReader(io.StringIO('''$output''')))
assert all(None not in row and None not in row.values() for row in rows)
ladder = {2 ** i for i in range(14)}
for pattern, routes in json.load(open(sys.argv[1]))['routes'].items():
    mine = [row for row in rows if row['pattern'] == pattern]
    tokens = {int(row['tokens']) for row in mine}
    bounds = {b for route in routes for b in (route['max_tokens'], route['max_tokens'] + 1) if b <= 8192}
    assert bounds <= tokens and ladder <= tokens
    assert len(tokens - ladder - bounds) >= 50, len(tokens - ladder - bounds)
    assert {int(row['tokens']) for row in mine if row['role'] == 'routed'} == tokens
    for form in 'nccl-fixed', 'nccl-any':
        assert {int(row['tokens']) for row in mine if row['role'] == form} == ladder
    best = {row['protocol'] for row in mine if row['role'] == 'best' and row['point'] == 'ladder'}
    assert best == {'ll', 'bt', 'ht', 'unfused'} | ({'separate'} if pattern == 'finalize' else set())
    # What is called a protocol's best is never slower than what the routes run of it.
    fastest = {(row['tokens'], row['protocol']): float(row['us']) for row in mine if row['role'] == 'best'}
    assert all(fastest[row['tokens'], row['protocol']] <= float(row['us']) for row in mine)
END
}

@test "without a profile: default routes, candidates from the seeds; a mark of one's own protocols alone" {
    on_model --tokens 1-64*2 --protocols ll,unfused --pattern allreduce --seeded 5
    [ "$status" -eq 0 ]
    [[ $output == *"routes: default;"* ]]
    [ "$(grep -cE '^allreduce +64 +[0-9.]+ +- +- +[0-9.]+ ' <<<"$output")" -eq 0 ] # BT is routed there
    [ "$(grep -cE '^allreduce +16 +[0-9.]+ +- +- +[0-9.]+ ' <<<"$output")" -eq 1 ]
    [ "$(verdict 'finalize: routed over unfused')" = 'not here' ]
}

@test "a route that loses: exit 1, the mark with the token count" {
    python3 - "$profile" "$BATS_TEST_TMPDIR/slow.json" <<'END'
import json, sys
profile = json.load(open(sys.argv[1]))
routes = profile['routes']['finalize']
separate = {'max_tokens': 8192, 'finalize': 'separate',
            'tuning': {'elements_per_thread': 8, 'threads': 128, 'prefetch_group': 10,
                       'release_before_store': False}}
profile['routes']['finalize'] = [separate]
profile['evidence'] = {'method': 'default'}
json.dump(profile, open(sys.argv[2], 'w'))
END
    on_model --profile "$BATS_TEST_TMPDIR/slow.json" --tokens 1-64*2
    [ "$status" -eq 1 ]
    [ "$(verdict 'finalize, 1 to 16 tokens')" = MISSED ]
    grep -qE '^mark MISSED +finalize, 1 to 16 tokens.*geometric mean [0-9.]+ of 16 points, at least 1.15' <<<"$output"
}

@test "time that is spent: what was not reached is said, and no mark is held by it" {
    on_model --profile "$profile" --seconds 1
    [ "$status" -eq 1 ]
    [[ $stderr =~ [0-9]+\ of\ [0-9]+\ points\ were\ not\ timed\ in\ 1\ s ]]
    [ "$(verdict 'allreduce: routed over unfused')" = OPEN ]
}

@test "wrong bits: the candidate is left out by name, exit 5" {
    run "$bench" --device model:tests/fixtures/model/wrong.json --tokens 1,8,256 --seeded 0 --pattern allreduce
    [ "$status" -eq 5 ]
    [[ $output == *"left out: allreduce bt "* ]]
    [ "$(grep -cE '^allreduce +8 +[0-9.]+ +- ' <<<"$output")" -eq 1 ]
}

@test "processes instead of local ranks: the same ladder" {
    on_model --processes 2 --tokens 1-16*2 --calls 20 --csv
    [ "$status" -eq 0 ]
    python3 - <<END
import csv, io
rows = list(csv.DictReader(io.StringIO('''$output''')))
assert {row['tp_size'] for row in rows} == {'2'} and {row['calls'] for row in rows} == {'20'}
assert len({(row['pattern'], row['tokens'], row['role'], row['protocol']) for row in rows}) == len(rows)
END
}

@test "the host device: real times beside a real copy, and no verdict on them" {
    run --separate-stderr "$bench" --device host --tp 2 --hidden 512 --topk 2 --tokens 1,8 --seeded 1 --seconds 20 --quiet
    [ "$status" -eq 0 ]
    grep -qE '^copy, .* 1 MiB [0-9.]+ TB/s, 8 MiB' <<<"$output"
    [ "$(grep -cE '^finalize +8 ( +[0-9]+\.[0-9]+){10}$' <<<"$output")" -eq 1 ] # floors and ratios
    [ "$(verdict 'allreduce: routed over unfused')" = 'not here' ]
}

@test "what it cannot follow is refused" {
    for arguments in '--seconds 0' '--seconds' '--processes 17' '--hidden 512,1024' '--check x' '--strict' \
        '--format md' '--set ll.threads=64' '--noise 2' '--output x' '--frobnicate'; do
        # shellcheck disable=SC2086
        run "$bench" --device model:default $arguments
        echo "$arguments: $output"
        [ "$status" -eq 2 ]
        [[ $output == "gpu_bench: "* ]]
    done
    run "$bench" --device model:default --profile "$profile" --hidden 512
    [ "$status" -eq 3 ]
    [[ $output == *"not the shape of the options"* ]]
    run "$bench" --budget 20
    [ "$status" -eq 2 ]
    [[ $output == *"--budget: the time of a run is --seconds here" ]] # not "given twice"
}

@test "--help names its own options and those of arfuse-tune, exit 0" {
    run --separate-stderr "$bench" --device model:default --help
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    for option in --profile --seconds --csv --processes --calls --seeded --hidden --wait-limit; do
        [[ $output == *"$option"* ]]
    done
}

@test "a stand-in for CUDA: the host's costs are measured, and results that nobody wrote are wrong" {
    fake=${BUILD:-build}/tests/fakecuda
    [ -e "$fake/libcuda.so.1" ] || skip "built without the CUDA device"
    run --separate-stderr env LD_LIBRARY_PATH="$fake" XDG_CACHE_HOME="$BATS_TEST_TMPDIR" "$bench" --hidden 512 --topk 2 \
        --tokens 1 --seeded 0 --protocols unfused --pattern allreduce --quiet
    [[ $stderr != *nvrtc* ]] || skip "no libnvrtc here"
    echo "$output"
    echo "$stderr"
    [ "$status" -eq 5 ]
    [[ $stderr == *"left out: allreduce "*"is not written"* ]]
    grep -qE '^copy, .* 1024 MiB [0-9.]+ TB/s$' <<<"$output"
    [[ $output == *"mark not here  allreduce, 1 to 2048 tokens: routed over the NCCL composition: NCCL takes one rank a GPU, and 8 share one"* ]]
    grep -qE '^mark [A-Za-z]+ +launch cost .*: worst [0-9.]+ \([a-z]+, [0-9]+ tokens, [0-9]+ kernels: ' <<<"$output"
    grep -qE '^mark [A-Za-z]+ +creating a workspace.*: [0-9.]+ ms, at most 100' <<<"$output"
    grep -qE '^mark [A-Za-z]+ +compiling a kernel.*: [0-9.]+ s at worst \([a-z_]+, of [0-9]+\), at most 2' <<<"$output"
}

@test "two stand-ins for GPUs: the links are measured, NCCL is asked, and results that nobody wrote are wrong" {
    fake=${BUILD:-build}/tests/fakecuda
    [ -e "$fake/libcuda.so.1" ] || skip "built without the CUDA device"
    run --separate-stderr env LD_LIBRARY_PATH="$fake" FAKECUDA_DEVICES=2 XDG_CACHE_HOME="$BATS_TEST_TMPDIR" "$bench" \
        --processes 2 --hidden 512 --topk 2 --tokens 1 --seeded 0 --protocols unfused --pattern allreduce --verbose
    [[ $stderr != *nvrtc* ]] || skip "no libnvrtc here"
    echo "$output"
    echo "$stderr"
    [ "$status" -eq 5 ]
    [[ $stderr == *"left out: allreduce "*"is not written"* ]]
    [[ $stderr == *"unfused by NCCL 2.28.0"* ]]
    grep -qE '^links, each GPU to all others at once: [0-9]+ GB/s out of the slowest, [0-9]+ of the fastest$' <<<"$output"
    [ "$(verdict 'allreduce, 1 to 2048 tokens: routed over the NCCL composition')" = OPEN ]
}

@test "a process that dies: the others do not outlive it by much, exit not 0" {
    "$bench" --device host --processes 2 --hidden 512 --topk 2 --tokens 1-256*2 --seeded 256 --seconds 120 --wait-limit 120 \
        --quiet >/dev/null 2>&1 3>&- &
    parent=$!
    for _ in $(seq 100); do
        mapfile -t child < <(pgrep -P "$parent")
        [ "${#child[@]}" -lt 2 ] || break
        sleep 0.1
    done
    [ "${#child[@]}" -eq 2 ]
    start=$SECONDS
    kill -9 "${child[1]}"
    status=0
    wait "$parent" || status=$?
    [ "$status" -ne 0 ]
    [ $((SECONDS - start)) -lt 40 ]
}
