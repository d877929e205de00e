#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole tuner on the model device: regret against the truth that the model knows, equal bytes for
# equal seeds, every fault of tests/fixtures/model, kills and resumes. Ten seeds and three kills;
# ARFUSE_TEST_LONG=1 takes a hundred and fifty.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
seeds=10 kills=3
[ "${ARFUSE_TEST_LONG:-0}" = 1 ] && seeds=100 kills=50
fixtures=tests/fixtures/model
# In memory where there is such a place: every sample is synced to disk.
work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 failures=0

check() { # STATUS NAME: one TAP line; what was seen stands in $work/seen
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        failures=$((failures + 1))
        sed 's/^/# /' "$work/seen" | tail -n 30
    fi
}

tune() { # NAME MODEL [OPTION...]: leaves $work/NAME/..., $work/NAME.out, $work/NAME.err
    local name=$1 model=$2
    shift 2
    timeout 120 "$BUILD/arfuse-tune" --hidden 6144 --topk 10 --tp 8 --device "model:$model" \
        --output "$work/$name" "$@" >"$work/$name.out" 2>"$work/$name.err"
}
profile() { echo "$work/$1/model-model/tp8_h6144_k10_bf16.json"; }
routes() { # NAME: the routes alone, without what the measurement says about them
    sed -n '/"routes": {$/,/^  },/p' "$(profile "$1")" | sed '/"evidence"/,$d'
}
protocols() { # NAME PATTERN: "ll bt ht"
    routes "$1" | awk -v pattern="\"$2\":" '$1 == pattern { on = 1; next } /^    \]/ { on = 0 }
        on && match($0, /"(protocol|finalize)": "[a-z]*"/) { split(substr($0, RSTART, RLENGTH), part, "\""); printf "%s%s", sep, part[4]; sep = " " }'
}

# ---- regret over seeds ---------------------------------------------------------------------------

regret() { # MODEL NOISE SEEDS ROUTES GEOMEAN WORST [SHARE OF BOUNDS]
    local seed model judged status=0
    : >"$work/seen"
    for seed in $(seq 1 "$3"); do
        model="$1,seed=$seed,noise=$2"
        if ! tune regret "$model"; then
            tail -n 3 "$work/regret.err" >>"$work/seen"
            status=1
            continue
        fi
        judged=$("$BUILD/tests/judge_test" "$model" "$(profile regret)") || status=1
        while read -r line; do echo "seed $seed: $line"; done <<<"$judged" >>"$work/seen"
        rm -rf "$work/regret"
    done
    # fields: seed S: PATTERN routes N geomean X worst Y at M bounds N right N
    awk -v routes="$4" -v geomean="$5" -v worst="$6" -v wanted=$((2 * $3)) -v share="${7:-0.95}" '
        $1 == "seed" { lines++; bounds += $13; right += $15; bad += $5 > routes || $7 > geomean || $9 > worst }
        END { printf "%d of %d outside the limits, %d of %d bounds right\n", bad, lines, right, bounds
              exit !(lines == wanted && bad == 0 && bounds > 0 && right >= share * bounds) }' \
        "$work/seen" >"$work/summary" || status=1
    cat "$work/summary" >>"$work/seen"
    sed 's/^/# /' "$work/summary"
    return $status
}
regret default 0.01 "$seeds" 4 0.003 0.02
check $? "noise 1 %, $seeds seeds: regret at most 0.3 % in the mean and 2 % anywhere, four routes, bounds right"
regret default 0.05 $((seeds / 5)) 4 0.015 0.10
check $? "noise 5 %, $((seeds / 5)) seeds: the same five times as wide"

# Where the best value of a knob moves with every octave, a few routes and a few token counts of
# screening cannot follow it all the way; this is how far they do.
regret $fixtures/shifting.json 0.01 $((seeds / 5)) 8 0.006 0.06
check $? "optima that move with M, $((seeds / 5)) seeds: regret at most 0.6 % in the mean, eight routes"

# A staircase whose steps lie right behind the ladder's points: HT is ahead at all of them from 512 on
# and half as fast as BT between some. Without a look between them the routes lose 1.7 % on average and
# 50 % at worst; where two times cross again and again there is more than one right bound.
regret $fixtures/stairs.json 0.01 $((seeds / 5)) 8 0.006 0.30 0.5
check $? "steps between the ladder's points, $((seeds / 5)) seeds: regret at most 0.6 % in the mean, eight routes"

# Floors, slopes and blocks of the order of one H200 with 8 ranks (profiles/nvidia-h200-shared-gpu):
# tunings within 2 % of each other, and every time off by 0.5 % from run to run. HT takes blocks of 16
# tokens and is at its best where the ladder looks: without a look right behind, routes lose 14 % there.
regret $fixtures/near.json 0.004 $((seeds / 5)) 8 0.006 0.10 0.5
check $? "near-equal tunings and blocks, $((seeds / 5)) seeds: regret at most 0.6 % in the mean and 10 % anywhere"
# BT's best tuning moves with M where BT wins, a small part of what it serves: screened at token counts
# spread over all of that, routes lose 0.39 % on average.
awk '$3 == "allreduce" { sum += $7; count++ }
    END { printf "%.5f over %d seeds\n", sum / count, count; exit !(count > 0 && sum / count <= 0.003) }' \
    "$work/seen" >"$work/mean"
check $? "there, on average over seeds, allreduce routes lose at most 0.3 %: $(cat "$work/mean")"

# ---- determinism and cost ------------------------------------------------------------------------

tune first default,seed=3 && tune second default,seed=3 &&
    cmp "$(profile first)" "$(profile second)" >"$work/seen" 2>&1 &&
    cmp "$work/first/model-model/tp8_h6144_k10_bf16.samples.jsonl" \
        "$work/second/model-model/tp8_h6144_k10_bf16.samples.jsonl" >"$work/seen" 2>&1
check $? "equal seeds give equal bytes, profile and samples"

mpirun --oversubscribe -n 4 "$BUILD/arfuse-tune" --hidden 6144 --topk 10 --tp 8 \
    --device model:default,seed=3 --output "$work/four" >"$work/four.out" 2>"$work/four.err" &&
    cmp "$(profile first)" "$(profile four)" >"$work/seen" 2>&1
check $? "four processes with two ranks each write the same profile as one with eight"

# A sweep of every candidate at every token count of the ladder that it serves, with the rounds that one
# gets which has not lost: seven at least.
dry=$("$BUILD/arfuse-tune" --hidden 6144 --topk 10 --tp 8 --device model:default --dry-run)
awk '
    FILENAME == ARGV[1] && $1 == "candidate" { points += $2 == "ll" ? 7 : $2 == "bt" ? 12 : 14 }
    FILENAME == ARGV[2] { for (i = 2; i <= NF; i++) if ($i ~ /^timings/) timings = $(i - 1) }
    END { all = points * 7
          printf "%d timings, %d in an exhaustive sweep: %.3f\n", timings, all, timings / all
          exit !(timings > 0 && timings <= all / 5) }' \
    <(echo "$dry") "$work/first.err" >"$work/seen"
check $? "at most a fifth of the timings of an exhaustive sweep"
sed 's/^/# /' "$work/seen"

# unfused takes four times as long as LL at one token: after three rounds nobody needs to know better.
awk '
    /"tokens": 1,/ && /"us": \[/ {
        line = $0; sub(/.*"us": \[/, "", line); rounds = split(line, part, ",")
        if (/"protocol": "unfused"/) { lost++; many += rounds != 3 }
        if (/"protocol": "ll"/ && rounds >= 7) full++
    }
    END { printf "%d lost, %d of them with other than three rounds, %d with seven\n", lost, many, full
          exit !(lost > 0 && many == 0 && full > 0) }' \
    "$work/first/model-model/tp8_h6144_k10_bf16.samples.jsonl" >"$work/seen"
check $? "who has lost by far is timed no more than three times a point"

# ---- faults --------------------------------------------------------------------------------------

fault() { # NAME EXIT ALLREDUCE FINALIZE TEXT
    local status=0
    tune "$1" "$fixtures/$1.json,seed=3"
    local code=$?
    {
        echo "exit $code, expected $2"
        [ "$code" -eq "$2" ] || status=1
        echo "allreduce: $(protocols "$1" allreduce), expected $3"
        [ "$(protocols "$1" allreduce)" = "$3" ] || status=1
        echo "finalize: $(protocols "$1" finalize), expected $4"
        [ "$(protocols "$1" finalize)" = "$4" ] || status=1
        grep -qF -- "$5" "$work/$1.err" || { echo "no line says: $5" && status=1; }
        head -n 20 "$work/$1.err" | cut -c 1-200
    } >"$work/seen"
    check $status "fault $1"
}
fault wrong 5 "ll ht" "ll bt ht" "gives wrong results and is left out: rank 3"
fault wrong-tuning 5 "ll bt ht" "ll bt ht" "threads=256"
fault absent 9 "ll bt unfused" "ll bt separate" "rank 5 did not arrive"
fault launch 9 "ll bt ht" "ll bt ht" "rank 2: the launch of ll"
fault prepare 9 "ll ht" "ll ht" "rank 7: bt does not compile"
fault memory 9 "ll bt ht unfused" "ll bt ht separate" "rank 1: out of device memory for ht at 8192 tokens"
fault slow-rank 0 "ll bt ht" "ll bt ht" "rank 4 took far longer than the fastest rank"
fault clock-drop 0 "ll bt ht" "ll bt ht" "the same call became up to 2"

grep -q 'clocks were held down at [0-9]* of [0-9]* points (power), between 1600 and 2000 MHz' "$work/clock-drop.err"
check $? "a clock drop is told"
samples=$(ls "$work"/clock-drop/*/*.samples.jsonl)
[ "$(grep -c '"clock_mhz": 2000, "us"' "$samples")" -gt 0 ] &&
    [ "$(grep -c '"clock_mhz": 1600, "throttle": "power", "us"' "$samples")" -gt 0 ]
check $? "a clock drop is in the samples"

# Clocks that drop change no choice.
"$BUILD/tests/judge_test" default,seed=3 "$(profile clock-drop)" >"$work/seen" 2>&1
awk '{ bad += $5 > 0.003 || $7 > 0.02 } END { exit !(NR == 2 && bad == 0) }' "$work/seen"
check $? "a clock drop of 20 % half way leaves the routes as good"

# ---- kills ---------------------------------------------------------------------------------------

# Small, with a pause in every timing so that the kill meets it at work.
small=(--tokens '1-256*2' --protocols 'll,bt,unfused')
model=default,seed=5
tune whole $model "${small[@]}"
landed=0 tries=0
RANDOM=7
while [ $landed -lt $kills ] && [ $tries -lt $((4 * kills)) ]; do
    tries=$((tries + 1))
    "$BUILD/arfuse-tune" --hidden 6144 --topk 10 --tp 8 \
        --device "model:$model,pause_seconds=0.00002" --output "$work/killed" --resume \
        "${small[@]}" >"$work/killed.out" 2>"$work/killed.err" &
    pid=$!
    sleep "$(awk -v r=$RANDOM 'BEGIN { print 0.05 + 1.2 * r / 32768 }')"
    signal=KILL
    [ $((tries % 2)) -eq 0 ] && signal=TERM
    kill -$signal $pid 2>/dev/null && landed=$((landed + 1))
    wait $pid 2>/dev/null
    [ $((tries % 5)) -eq 0 ] && rm -rf "$work/killed" # begin again now and then
done
tune killed $model --resume "${small[@]}"
code=$?
{
    echo "$landed kills landed, last exit $code"
    diff "$(profile whole)" "$(profile killed)"
    tail -n 5 "$work/killed.err"
} >"$work/seen" 2>&1
[ $code -eq 0 ] && [ $landed -ge $kills ] && cmp -s "$(profile whole)" "$(profile killed)"
check $? "killed $kills times and resumed: the same profile as uninterrupted"

echo "1..$number"
exit $((failures > 0))
