#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a tune leaves its user with: results that programs read, and last lines that can be followed.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    tune=$PWD/${BUILD:-build}/arfuse-tune
    cd "$BATS_FILE_TMPDIR" || exit 1
    for format in csv jsonl; do
        "$tune" --hidden 512 --topk 2 --tp 2 --device model:default --tokens 1,16 \
            --protocols ll,unfused --output "$format" --format $format >$format.out 2>$format.err
    done
}

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    programs=$PWD/${BUILD:-build}
    cd "$BATS_FILE_TMPDIR" || exit 1
}

@test "CSV: one row a point and candidate, what was chosen first, then what was seen" {
    [ "$(head -n 1 csv.out)" = "pattern,tp_size,hidden_size,top_k,dtype,rms_norm,residual,shared_expert,tokens,protocol,transport,numerics,tuning,then,median_us,low_us,high_us,rounds,calls,clock_mhz,throttle,policy,kernel_set,device,compute_capability,sm_count,link,nodes,ranks_per_gpu,outcome,reason,routed,format_version" ]
    python3 - <<'END'
import csv
rows = list(csv.DictReader(open('csv.out', newline='')))
assert len({(r['pattern'], r['tokens'], r['protocol'], r['tuning']) for r in rows}) == len(rows) > 4
assert {r['pattern'] for r in rows} == {'allreduce', 'finalize'}
for row in rows:
    assert None not in row and None not in row.values()
    assert row['format_version'] == '1' and row['outcome'] in ('timed', 'wrong', 'failed')
    assert row['outcome'] != 'timed' or float(row['low_us']) <= float(row['median_us']) <= float(row['high_us'])
    assert int(row['rounds']) > 0 and int(row['calls']) > 0
END
}

@test "JSON lines: alone on stdout, the same rows" {
    python3 - <<'END'
import csv, json
rows = [json.loads(line) for line in open('jsonl.out')]
assert all(row['format'] == 'arfuse-results' and row['version'] == 1 for row in rows)
table = list(csv.DictReader(open('csv.out', newline='')))
key = lambda row: (row['pattern'], int(row['tokens']), row['protocol'], '%.4f' % float(row['median_us']))
assert sorted(map(key, rows)) == sorted(map(key, table))
END
}

@test "the clocks behind the points are in every table, and come back from it" {
    # As if a device had told them: a resumed run reports what it takes up.
    samples=clocks/model-model/tp2_h512_k2_bf16.samples.jsonl
    shape=(--hidden 512 --topk 2 --tp 2 --device model:default --tokens 1,16 --output clocks --quiet)
    "$programs/arfuse-tune" "${shape[@]}" >clocks.out
    jq -c 'if .format then . else . + {clock_mhz: (1000 + .tokens), throttle: "power, heat"} end' \
        $samples >clocks.samples
    cp clocks.samples $samples
    points() { jq -c 'select(.format == null) | [.pattern, .tokens, .protocol // .finalize, .tuning, .then.protocol, .calls, .clock_mhz, .throttle]' "$1" | sort; }
    wanted=$(points $samples)
    grep -q 'separate' <<<"$wanted"
    for format in csv jsonl; do
        "$programs/arfuse-tune" "${shape[@]}" --resume --format $format >clocks.$format
        [ "$(grep -c '"power, heat"' clocks.$format)" = "$(wc -l <<<"$wanted")" ]
    done
    [ "$(jq -c 'select(.clock_mhz != 1000 + .tokens)' clocks.jsonl)" = "" ]
    # Back from the tuner's table and from the export, with no option to say what it is.
    "$programs/arfuse-profile" export --to csv -o exported.csv $samples
    for table in clocks.csv exported.csv; do
        "$programs/arfuse-profile" import --from csv $table >back.samples.jsonl
        [ "$(points back.samples.jsonl)" = "$wanted" ]
    done
}

@test "the last line can be followed to the letter" {
    last=$(tail -n 1 csv.err)
    # arfuse-tune: load it with NAME=FILE; see what it says with: COMMAND
    variable=$(sed -E 's/^arfuse-tune: load it with ([^;]*); see .*/\1/' <<<"$last")
    command=$(sed -E 's/.*see what it says with: //' <<<"$last")
    [[ $command == "arfuse-profile show "* ]]
    run env PATH="$programs:$PATH" bash -c "$command"
    [ "$status" -eq 0 ]
    [[ $output == *"tp_size 2, hidden_size 512, top_k 2"* ]]
    [[ $variable == ARFUSE_PROFILE=* ]]
    run "$programs/arfuse-profile" explain --tokens 7 "${variable#*=}"
    [ "$status" -eq 0 ]
    [[ $output == *"allreduce, 7 tokens"* ]]
    # The runtime takes it by that variable, and this profile is of a machine that this is not.
    run env "$variable" "$programs/examples/run_profile" "${variable#*=}" 2 512 2
    [ "$status" -eq 3 ]
    [[ $output == *"${variable#*=}"* ]]
}

@test "progress counts, gives medians and the time that is left, and is quiet when asked" {
    grep -qE '^arfuse-tune: \[1/[0-9]+\] allreduce M=1: [a-z]+ [0-9.]+ us' csv.err
    [ "$(grep -c "$(printf '[\r\033]')" csv.err)" -eq 0 ]
    run "$programs/arfuse-tune" --hidden 512 --tp 2 --device model:default --tokens 1 \
        --protocols ll,unfused --output quiet --quiet
    [ "$status" -eq 0 ]
    [[ $output != *"arfuse-tune:"* ]]
}

@test "help and version say when stdout does not take them" {
    for program in arfuse-tune arfuse-profile; do
        for option in --help --version; do
            run bash -c "'$programs/$program' $option >/dev/full"
            [ "$status" -eq 1 ]
            [[ $output == "$program: "*stdout* ]]
        done
    done
}

@test "a budget that is spent names the points, also those that older samples know in part" {
    few="--hidden 512 --topk 2 --tp 2 --device model:default,prepare_seconds=0 --tokens 1-64*2 --protocols ll,unfused"
    "$programs/arfuse-tune" $few --set ll.threads=128 --output base --quiet >/dev/null
    run "$programs/arfuse-tune" $few --base base/*/*_bf16.json --budget 0.02 --output short
    [[ $output == *"the budget of 0.02 s was spent: "* ]]
    [ -z "$(grep -E 'measured( with some candidates only)? at +tokens' <<<"$output")" ]
    grep -qE 'finalize was measured with some candidates only at [0-9,]+ tokens' <<<"$output"
}

@test "a screening that the budget cuts short is one line a pattern, with every protocol" {
    run --separate-stderr "$programs/arfuse-tune" --hidden 512 --topk 2 --tp 2 --tokens 1-64*2 --budget 1 --quiet \
        --device model:default,prepare_seconds=0 --output cut
    [ "$status" -eq 0 ]
    [ "$(grep -c 'cut the screening' <<<"$stderr")" -eq 2 ]
    grep -qE '^arfuse-tune: allreduce, H 512: .* short: [0-9]+ of ll at [0-9] of [0-9] .*, [0-9]+ of ht at ' <<<"$stderr"
}

@test "a profile for more ranks than were started: what to start" {
    for task in "--check $(echo csv/*/*_bf16.json)" "--ab $(echo csv/*/*_bf16.json),default"; do
        run "$programs/arfuse-tune" $task --device model:default --quiet
        [ "$status" -eq 3 ]
        [[ $output == *"is for 2 ranks, and this team has 1; start 2 processes, or add --tp 2" ]]
    done
}

@test "a point without any time shows no route" {
    run "$programs/arfuse-tune" --hidden 512 --tp 4 --tokens 1-64*2 --protocols ll,bt --output wrong \
        --device "model:$BATS_TEST_DIRNAME/../fixtures/model/wrong.json,prepare_seconds=0"
    [ "$status" -eq 5 ]
    grep -qE '^ +19 +- +-$' <<<"$output"
}

@test "one of a thing is not many" {
    run "$programs/arfuse-tune" --hidden 512 --tp 1 --device model:default --tokens 1 --output one
    [ "$status" -eq 0 ]
    grep -q '^allreduce, 1 rank, H 512' <<<"$output"
    [ -z "$(grep -E '(^|[^0-9.,])1 (ranks|tokens|points|timings|samples|candidates|token counts|cores|processes)' <<<"$output")" ]
}

@test "numerics that are not fixed: labelled in every row and route, and what they were held to is said" {
    any=("$programs/arfuse-tune" --hidden 512 --tp 2 --device model:default --tokens 1,16 --protocols unfused --output any --numerics any)
    run -0 --separate-stderr "${any[@]}" --set unfused.rms_threads=512 --format csv
    [ "$(cut -d, -f12 <<<"$output" | sort -u | tr '\n' ' ')" = "fixed library numerics " ]
    [[ $stderr == *'1 of the verified had numerics that are not fixed: held to what a sum in any order may come to, not to the bit'* ]]
    run -0 --separate-stderr "${any[@]:0:${#any[@]}-2}" --set unfused.rms_threads=512
    [[ $stderr != *'not fixed'* ]]
}

@test "a closed standard stream does not become a file of results" {
    shape=(--hidden 512 --topk 2 --tp 2 --device model:default --tokens 1,16 --verbose)
    samples=model-model/tp2_h512_k2_bf16.samples.jsonl
    tune() { "$programs/arfuse-tune" "${shape[@]}" "$@"; }
    tune --output in <&- >/dev/null 2>&1
    tune --output err 2>&- >/dev/null
    code=0
    tune --output out >&- 2>closed.err || code=$?
    [ "$code" -eq 1 ] # as any stdout that takes nothing
    grep -q 'stdout does not take the results' closed.err
    code=0
    tune --output all <&- >&- 2>&- || code=$?
    [ "$code" -eq 1 ]
    for output in in err out all; do
        "$programs/arfuse-profile" fit $output/$samples >/dev/null
        [ -z "$(grep -v '^{' $output/$samples)" ]
    done
}

@test "arfuse-profile with a closed stdout or stderr" {
    samples=csv/model-model/tp2_h512_k2_bf16.samples.jsonl
    "$programs/arfuse-profile" fit $samples -o closed.json 2>&-
    "$programs/arfuse-profile" show closed.json >/dev/null
    code=0
    "$programs/arfuse-profile" show closed.json >&- 2>closed.err || code=$?
    [ "$code" -eq 1 ]
    grep -q 'cannot write to stdout' closed.err
    ln -s /proc/self/fd/1 link # as /dev/stdout is one
    code=0
    "$programs/arfuse-profile" fit $samples -o link >&- 2>closed.err || code=$?
    [ "$code" -eq 3 ]
    grep -q 'link: is not a regular file' closed.err
    [ -L link ]
}
