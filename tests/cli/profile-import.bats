#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile import and fit: tables with known crossings come back as bounds, or are refused in
# words; nothing is taken or left out silently.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    command -v python3 >/dev/null || skip "no python3"
    program=${BUILD:-build}/arfuse-profile
    like=profiles/published/flashinfer/default/tp4_h5120_k6_bf16.json
    device=(--set flashinfer --gpu "NVIDIA GB300" --capability 10.3 --sms 152)
    table=$BATS_TEST_TMPDIR/table.csv
    samples=$BATS_TEST_TMPDIR/made.samples.jsonl
    profile=$BATS_TEST_TMPDIR/made.json
}

split() {
    out=$("$program" "$@" 2>"$BATS_TEST_TMPDIR/err") && code=0 || code=$?
    err=$(cat "$BATS_TEST_TMPDIR/err")
}

sweep() {
    python3 tests/support/sweep.py "$@" >"$table"
}

# imports the table and fits it; what was said is in $err
fit() {
    split import --from csv "$@" -o "$samples" "$table"
    [ "$code" = 0 ] || { echo "$err"; false; }
    "$program" fit -o "$profile" "$samples"
    "$program" check "$profile" >/dev/null
}

# bounds PATTERN: "26 900 4096"
bounds() {
    jq -r --arg p "$1" '[.routes[$p][].max_tokens | tostring] | join(" ")' "$profile"
}

protocols() {
    jq -r --arg p "$1" '[.routes[$p][].protocol] | join(" ")' "$profile"
}

@test "an exact table gives the exact crossings" {
    sweep --crossings 26,900
    fit "${device[@]}"
    for pattern in allreduce finalize; do
        [ "$(protocols $pattern)" = "ll bt ht" ]
        read -r first second last <<<"$(bounds $pattern)"
        echo "$first $second $last"
        # between ladder points the bound lies on a chord: within 5 % of the truth
        python3 -c "import sys; sys.exit(not all(abs(a / b - 1) <= 0.05 for a, b in (($first, 26), ($second, 900))))"
        [ "$last" = 4096 ]
    done
    [ "$(jq -r .evidence.method "$profile")" = published ]
    [ "$(jq -r .kernels.set "$profile")" = flashinfer ]
    [ "$(jq -c '[.routes[][].tuning] | unique' "$profile")" = '[null]' ]
    [[ $err == *"52 rows of 'unfused' left out: kernel set flashinfer has no such protocol"* ]]
}

@test "noisy tables with repeated rows: bounds within 5 % or inside their interval" {
    seeds=10
    [ -z "${ARFUSE_TEST_LONG:-}" ] || seeds=100
    missed=0
    for seed in $(seq $seeds); do
        sweep --seed "$seed" --noise 0.01 --repeat 5 --crossings 30,700 --shuffle
        fit "${device[@]}"
        [[ $err == *"rows repeat a point and were taken as further rounds"* ]]
        for pattern in allreduce finalize; do
            jq -e --arg p $pattern '
                .routes[$p] as $routes | .evidence.routes[$p] as $evidence
                | def near($bound; $truth): ($bound / $truth - 1 | fabs) <= 0.05;
                  def inside($e; $truth): $e.bound_interval[0] <= $truth and $truth <= $e.bound_interval[1];
                  ($routes | map(.protocol) == ["ll", "bt", "ht"])
                  and (near($routes[0].max_tokens; 30) or inside($evidence[0]; 30))
                  and (near($routes[1].max_tokens; 700) or inside($evidence[1]; 700))
            ' "$profile" >/dev/null || {
                missed=$((missed + 1))
                echo "seed $seed $pattern: $(protocols $pattern) $(bounds $pattern)"
            }
        done
    done
    [ "$missed" -le $((seeds * 2 / 20)) ] # 95 %
}

@test "columns in any order and by other names give the same samples" {
    sweep
    split import --from csv "${device[@]}" "$table"
    first=$out
    sweep --columns microseconds,tokens,Protocol,pattern,topk,H,tp
    split import --from csv "${device[@]}" "$table"
    [ "$code" = 0 ]
    [ "$out" = "$first" ]
    # as a spreadsheet writes it: a byte-order mark, CRLF, quotes, an empty line at the end
    { printf '\xef\xbb\xbf' && sed 's/^\([^,]*\),/"\1",/; s/$/\r/' "$table" && echo; } >"$BATS_TEST_TMPDIR/dos.csv"
    split import --from csv "${device[@]}" "$BATS_TEST_TMPDIR/dos.csv"
    [ "$out" = "$first" ]
}

@test "equal tables give equal bytes, whatever the order of the rows" {
    sweep --noise 0.01
    fit "${device[@]}"
    cp "$profile" "$BATS_TEST_TMPDIR/first.json"
    { head -n 1 "$table" && tail -n +2 "$table" | sort -r; } >"$BATS_TEST_TMPDIR/sorted" && mv "$BATS_TEST_TMPDIR/sorted" "$table"
    fit "${device[@]}"
    cmp "$profile" "$BATS_TEST_TMPDIR/first.json"
}

@test "gaps are crossed, and widen the interval" {
    sweep --drop bt:24-96 --crossings 26,900
    fit "${device[@]}"
    [ "$(protocols allreduce)" = "ll bt ht" ]
    jq -e '.routes.allreduce[0].max_tokens as $b | .evidence.routes.allreduce[0].bound_interval as $i
           | $i[0] <= 26 and $i[1] >= 26 and $b >= $i[0] and $b <= $i[1]' "$profile"
}

@test "a missing protocol is said, and the others are fitted" {
    sweep --backends ll,ht
    fit "${device[@]}"
    [ "$(protocols allreduce)" = "ll ht" ]
    [[ $err == *"note: no row of bt for allreduce: no route can use it"* ]]
    sweep --patterns ar
    fit "${device[@]}"
    [ "$(protocols finalize)" = "" ]
    [ "$(protocols allreduce)" = "ll bt ht" ]
    [[ $err == *"no row of ll for finalize"* ]]
}

@test "points without a time are failures that no route crosses" {
    sweep --fail bt:512-512 --crossings 26,900
    fit "${device[@]}"
    [[ $err == *"1 of 26 points of bt for allreduce have no time"* ]]
    jq -e '[.routes.allreduce[] | select(.protocol == "bt") | .max_tokens] | all(. < 512 or . > 512)' "$profile"
    # also where another row of the point has one
    sweep --repeat 2 --fail bt:512-512
    sed -i '0,/,ar,bt,512,nan/s//,ar,bt,512,20/' "$table"
    split import --from csv "${device[@]}" "$table"
    [ "$(grep -c '"tokens": 512, "protocol": "bt".*"outcome": "failed"' <<<"$out")" = 2 ]
}

@test "several top-k in one table: asked which, and allreduce serves all of them" {
    sweep --top-k 6,3
    split import --from csv "${device[@]}" "$table"
    [ "$code" = 3 ]
    [[ $err == *"rows of top_k 6, 3, expected one; say which with --topk" ]]
    fit "${device[@]}" --topk 3
    [ "$(jq .shape.top_k "$profile")" = 3 ]
    [ "$(protocols allreduce)" = "ll bt ht" ] # timed once, under 6
    [ "$(protocols finalize)" = "ll bt ht" ]
    [[ $err == *"26 rows"*"left out"* || $err == *"rows of another shape left out"* ]]
    split import --from csv "${device[@]}" --topk 5 --hidden 4096 "$table"
    [ "$code" = 3 ]
    [[ $err == *"none of "*" rows is of tp_size "*"hidden_size 4096"* ]]
}

@test "a profile alike gives tunings, device and kernel set" {
    sweep --backends ll,bt,bt0,bt1,ht --repeat 2
    split import --from csv "${device[@]}" "$table"
    [ "$code" = 3 ]
    [[ $err == *"'bt0' is one of several tunings of bt; name a profile that has them with --like" ]]
    fit --like $like
    [ "$(jq -S .device $like)" = "$(jq -S .device "$profile")" ]
    [ "$(jq '[.routes[][].tuning | select(. == null)] | length' "$profile")" = 0 ]
    # what the profile says otherwise than the table is not mixed
    split import --from csv --like $like --set sglang "$table"
    [ "$code" = 3 ]
    [[ $err == *"kernel_set 'sglang' by --set, but 'flashinfer' by --like" ]]
    sed -i 's/,bt1,/,bt7,/' "$table"
    split import --from csv --like $like "$table"
    [ "$code" = 3 ]
    [[ $err == *"'bt7', but $like has fewer routes of bt for allreduce" ]]
}

@test "what the table does not say is asked for" {
    sweep --columns pattern,backend,m,us
    refused() { # MESSAGE OPTION...
        local message=$1
        shift
        split import --from csv "$@" "$table"
        echo "$err"
        [ "$code" = 3 ]
        [ -z "$out" ]
        [[ $err == *"$message"* ]]
    }
    refused "no column of tp_size, expected one, or --tp" "${device[@]}"
    refused "no column of hidden_size, expected one, or --hidden" "${device[@]}" --tp 4
    refused "no column of top_k, expected one, or --topk" "${device[@]}" --tp 4 --hidden 5120
    refused "nothing says whose kernels were timed" --tp 4 --hidden 5120 --topk 6
    refused "nothing says what was timed" --set flashinfer --tp 4 --hidden 5120 --topk 6
    refused "compute_capability ''" --set flashinfer --gpu X --tp 4 --hidden 5120 --topk 6
    split import --from csv "${device[@]}" --tp 4 --hidden 5120 --topk 6 "$table"
    [ "$code" = 0 ]
}

@test "tables that cannot be right are refused with the line" {
    refused() { # MESSAGE, table on stdin
        cat >"$table"
        split import --from csv "${device[@]}" --tp 4 --hidden 5120 --topk 6 "$table"
        echo "$code: $err"
        [ "$code" = 3 ]
        [ -z "$out" ]
        grep -qF "$1" <<<"$err"
    }
    refused "nothing, expected a line with the names of columns" <<<''
    refused "no row, expected some" <<<'pattern,backend,m,us'
    refused "no column 'pattern'" <<<$'backend,m,us\nll,1,2'
    refused "no column 'protocol'" <<<$'pattern,m,us\nar,1,2'
    refused "no column 'tokens'" <<<$'pattern,backend,us\nar,ll,2'
    refused "no column 'us'" <<<$'pattern,backend,m\nar,ll,2'
    refused "line 1: column 'm' twice" <<<$'pattern,backend,m,M\nar,ll,1,2'
    refused "line 3: 3 cells, expected 4" <<<$'pattern,backend,m,us\nar,ll,1,2\nar,ll,2'
    refused "line 2: pattern 'gather'" <<<$'pattern,backend,m,us\ngather,ll,1,2'
    refused "line 2: m '0', expected a whole number from 1" <<<$'pattern,backend,m,us\nar,ll,0,2'
    refused "line 2: m '1.5', expected" <<<$'pattern,backend,m,us\nar,ll,1.5,2'
    refused "line 2: no tokens" <<<$'pattern,backend,m,us\nar,ll,,2'
    refused "line 2: time '-1'" <<<$'pattern,backend,m,us\nar,ll,1,-1'
    refused "line 2: time '0'" <<<$'pattern,backend,m,us\nar,ll,1,0'
    refused "line 2: time 'inf'" <<<$'pattern,backend,m,us\nar,ll,1,inf'
    refused "line 2: time '1e99'" <<<$'pattern,backend,m,us\nar,ll,1,1e99'
    refused "line 2: time '2,5'" <<<$'pattern,backend,m,us\nar,ll,1,"2,5"'
    refused "line 2: time '4us'" <<<$'pattern,backend,m,us\nar,ll,1,4us'
    refused "line 2: a quote that is never closed" <<<$'pattern,backend,m,us\nar,ll,1,"2'
    refused "line 2: text behind a closing quote" <<<$'pattern,backend,m,us\nar,"ll"x,1,2'
    refused "line 2: dtype 'fp16', expected bf16" <<<$'pattern,backend,m,us,dtype\nar,ll,1,2,fp16'
    refused "no row of a protocol that kernel set flashinfer has" <<<$'pattern,backend,m,us\nar,nccl,1,2'
    refused "line 2: hidden_size '5120x'" <<<$'pattern,backend,m,us,hidden_size\nar,ll,1,2,5120x'
    refused "line 2: knob 'wings'" <<<$'pattern,backend,m,us,tuning\nar,ll,1,2,wings=2'
    refused "line 2: no knob 'elements_per_thread'" <<<$'pattern,backend,m,us,tuning\nar,ll,1,2,threads=128'
    refused "line 2: numerics 'loose'" <<<$'pattern,backend,m,us,numerics\nar,ll,1,2,loose'
    refused "numerics fixed: kernel set flashinfer sums in an order of its own" <<<$'pattern,backend,m,us,numerics\nar,ll,1,2,fixed'
    refused "line 3: device 'b', expected 'a' as in line 2" <<<$'pattern,backend,m,us,device\nar,ll,1,2,a\nar,ll,2,2,b'
    refused "device 'NVIDIA GB300' by --gpu, but 'H200' by the table" <<<$'pattern,backend,m,us,device\nar,ll,1,2,H200'
    printf 'pattern,backend,m,us\nar,ll,1,2\0\n' >"$BATS_TEST_TMPDIR/nul"
    refused "a NUL byte" <"$BATS_TEST_TMPDIR/nul"
}

@test "columns that nobody reads are named" {
    sweep
    sed -i 's/\r$//' "$table"
    sed -i '1s/$/,speedup/; 2,$s/$/,1.5/' "$table"
    split import --from csv "${device[@]}" "$table"
    [ "$code" = 0 ]
    [[ $err == *"note: columns that are not read: 'speedup'"* ]]
}

@test "samples to CSV and back lose nothing" {
    sweep --noise 0.01 --repeat 3 --fail ht:1-4
    for source in "${device[*]}" "--like $like"; do
        # shellcheck disable=SC2086
        eval "split import --from csv $(sed 's/NVIDIA GB300/"&"/' <<<"$source") -o $samples $table"
        [ "$code" = 0 ]
        "$program" export --to csv -o "$BATS_TEST_TMPDIR/back.csv" "$samples"
        "$program" import --from csv -o "$BATS_TEST_TMPDIR/back.jsonl" "$BATS_TEST_TMPDIR/back.csv"
        cmp "$samples" "$BATS_TEST_TMPDIR/back.jsonl"
        "$program" fit -o "$profile" "$samples"
        "$program" fit "$BATS_TEST_TMPDIR/back.jsonl" | cmp - "$profile"
        rm "$profile"
    done
}

@test "arfuse's own samples go to CSV and back, separate finalize and all" {
    samples=tests/fixtures/samples/arfuse.samples.jsonl
    "$program" export --to csv -o "$BATS_TEST_TMPDIR/back.csv" $samples
    "$program" import --from csv -o "$BATS_TEST_TMPDIR/back.jsonl" "$BATS_TEST_TMPDIR/back.csv"
    cmp <(jq -Sc 'del(.kernels)' $samples) <(jq -Sc 'del(.kernels)' "$BATS_TEST_TMPDIR/back.jsonl")
    # one row a point, the variables first, a format version in each
    [ "$(wc -l <"$BATS_TEST_TMPDIR/back.csv")" = "$(wc -l <$samples)" ]
    [[ $(head -n 1 "$BATS_TEST_TMPDIR/back.csv") == "format,pattern,tp_size,hidden_size,top_k,dtype,rms_norm,residual,shared_expert,tokens,protocol,"* ]]
    python3 -c 'import csv, sys
assert all(r["format"] == "arfuse-samples-csv-1" for r in csv.DictReader(open(sys.argv[1])))' "$BATS_TEST_TMPDIR/back.csv"
}

@test "fit takes weights and numerics, and says what it cannot" {
    sweep --noise 0.002
    split import --from csv "${device[@]}" -o "$samples" "$table"
    printf '1,1000\n2,1000\n' >"$BATS_TEST_TMPDIR/weights"
    split fit --weights "$BATS_TEST_TMPDIR/weights" "$samples"
    [ "$code" = 0 ]
    # where only 1 and 2 count, other routes are not worth their price
    [ "$(jq -c '[.routes[] | length]' <<<"$out")" != '[3,3]' ]
    split fit --numerics fixed "$samples"
    [ "$code" = 1 ]
    [ -z "$out" ]
    [[ $err == *'of numerics weaker than "fixed"'* ]]
    split fit --numerics any "$samples"
    [ "$code" = 0 ]
    split fit --weights /nonexistent "$samples"
    [ "$code" != 0 ]
    [ -z "$out" ]
    split fit /nonexistent
    [ "$code" = 3 ]
    split fit $like
    [ "$code" = 3 ]
    head -c 4000 "$samples" >"$BATS_TEST_TMPDIR/cut.jsonl"
    split fit "$BATS_TEST_TMPDIR/cut.jsonl"
    [ "$code" = 0 ]
    [[ $err == *"note: the last line is cut off and was left out" ]]
}

@test "usage errors are exit 2" {
    for arguments in "fit" "fit --numerics none x" "fit --duplicates none x" "fit --nope x" "import x" \
        "import --from xml x" "import --from csv" "import --from csv a b" "import --from csv --tp 73 x" \
        "import --from csv --hidden x x"; do
        # shellcheck disable=SC2086
        split $arguments
        echo "$arguments: $code"
        [ "$code" = 2 ]
        [ -z "$out" ]
        [[ $err == "arfuse-profile: "* ]]
    done
}

@test "two megabytes of samples are fitted in a second or two" {
    python3 - "$table" <<'MAKE'
import random, sys
random.seed(1)
with open(sys.argv[1], "w") as f:
    f.write("pattern,backend,m,us,tuning\n")
    for i in range(4500):
        m = 1 + i // 40
        threads, lanes, cluster = 32 * (1 + i % 8), 1, 1 + i % 5
        f.write("ar,ll,%d,%s,elements_per_thread=8 threads=%d release_before_store=false collect_cluster=%d "
                "collect_lanes=1 collect_threads=160 enable_pdl=true\n"
                % (m, 4 + .1 * m + random.random(), threads, cluster + 4))
MAKE
    "$program" import --from csv "${device[@]}" --tp 4 --hidden 5120 --topk 6 -o "$samples" "$table" 2>/dev/null
    # filled up with rounds to just below the limit of a samples file
    python3 - "$samples" <<'FILL'
import json, random, sys
random.seed(2)
lines = open(sys.argv[1]).read().splitlines()
room = (2 << 20) - sum(len(line) + 1 for line in lines) - 1000
each = room // (len(lines) - 1) // 9
with open(sys.argv[1], "w") as f:
    f.write(lines[0] + "\n")
    for line in lines[1:]:
        row = json.loads(line)
        row["us"] = [round(row["us"][0] * random.uniform(.99, 1.01), 4) for _ in range(max(1, each))]
        f.write(json.dumps(row) + "\n")
FILL
    [ "$(stat -c %s "$samples")" -gt 1500000 ]
    start=$(date +%s%N)
    "$program" fit -o "$profile" "$samples"
    took=$((($(date +%s%N) - start) / 1000000))
    echo "# $(stat -c %s "$samples") bytes, $(wc -l <"$samples") lines: $took ms" >&3
    [ "$took" -lt 10000 ] # a loaded machine is no failure; a quadratic step would be
}

@test "a table of routes whose bound lies outside its interval is refused by name" {
    table=$BATS_TEST_TMPDIR/edited.csv
    "$program" export --to csv tests/fixtures/profiles/good/measured.json |
        awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { $at["bound_low"] = 1; $at["bound_high"] = 11 } 1' >"$table"
    split import --from csv "$table"
    echo "$err"
    [ "$code" = 3 ]
    [ -z "$out" ]
    [[ $err == "arfuse-profile: $table: \$.evidence.routes.allreduce[0].bound_interval: [1, 11], expected one that holds the route's max_tokens, which is 12" ]]
}
