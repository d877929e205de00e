#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions that check calls
# Whole tunes on the model device: equal bytes however the ranks are spread, the faults that it
# plays, exit codes, and what the last lines say.
set -u
. tests/support/tune.bash
faults=$PWD/tests/fixtures/model
shape=(--hidden 256 --topk 4 --tokens '1-512*4')
file=model-model/tp8_h256_k4_bf16

# Equal however the eight ranks are spread over processes, and again.
for ranks in 1 2 8; do
    run_tune "$ranks" --tp 8 "${shape[@]}" --device model:default --output "$work/p$ranks"
    check "8 ranks on $ranks processes: exit 0" [ "$rc" -eq 0 ]
done
check "2 processes: the same profile" cmp -s "$work/p1/$file.json" "$work/p2/$file.json"
check "8 processes: the same profile" cmp -s "$work/p1/$file.json" "$work/p8/$file.json"
check "8 processes: the same samples" cmp -s "$work/p1/$file.samples.jsonl" "$work/p8/$file.samples.jsonl"
check "first line says the device" \
    [ "$(grep -c '^arfuse-tune: device model .* on model' <(head -n 1 "$work/err"))" -eq 1 ]
check "a last line names the file and the device" says "wrote $work/p8/$file.json (device model"
check "the last line says how to load it" \
    [ "$(grep -c "ARFUSE_PROFILE=$work/p8/$file.json" <(tail -n 1 "$work/err"))" -eq 1 ]
check "progress counts points" [ "$(grep -cE '^arfuse-tune: \[1/6\] allreduce M=1: ' "$work/err")" -eq 1 ]
check "calls of mixed sizes are timed together, in both patterns" \
    [ "$(grep -cE '^arfuse-tune: (allreduce|finalize) at M=[0-9]+(,[0-9]+){7} in turn: .* against each alone$' "$work/err")" -eq 2 ]
check "what the mix took is in the evidence of both patterns, as it was said" python3 - "$work/p8/$file.json" "$work/err" <<'END'
import json, re, sys
mixed = json.load(open(sys.argv[1]))["evidence"]["mixed"]
said = re.findall(r"(\w+) at M=([\d,]+) in turn: ([\d.]+) us a call, (\S+) % \((\S+) to (\S+)\)", open(sys.argv[2]).read())
assert {row[0] for row in said} == set(mixed) == {"allreduce", "finalize"}
for pattern, tokens, us, *changes in said:
    mix = mixed[pattern]
    assert mix["tokens"] == [int(t) for t in tokens.split(",")]
    assert f'{mix["median_us"]:.2f}' == us
    assert [f"{100 * c:+.1f}" for c in (mix["change"], *mix["change_interval"])] == changes
END
check "every route's time under both policies is in the evidence, as it was said" python3 - "$work/p8/$file.json" "$work/err" <<'END'
import json, re, sys
profile, text = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
said = re.findall(r"(\w+) (\w+) of (\d+) tokens?: warm ([\d.]+) us, decode ([\d.]+) us", text)
kept, routes = [], 0
for pattern, list in profile["evidence"]["routes"].items():
    first = 1
    for route, entry in zip(profile["routes"][pattern], list):
        assert first <= entry["shift_tokens"] <= route["max_tokens"]
        first = route["max_tokens"] + 1
        kept.append((pattern, route.get("protocol", "separate"), str(entry["shift_tokens"]),
                     f'{entry["warm_us"]:.2f}', f'{entry["decode_us"]:.2f}'))
assert kept and said == kept
END
check "progress is plain lines" [ "$(grep -c "$(printf '[\r\033]')" "$work/err")" -eq 0 ]
check "the profile is valid" "$BUILD/arfuse-profile" check "$work/p8/$file.json"
run_tune 8 "${shape[@]}" --device model:default --output "$work/v" --verbose
check "every rank ends with the same route digest" \
    [ "$(grep -o 'route digest [0-9a-f]*' "$work/err" | sort | uniq -c | awk '{ print $1 }')" = 8 ]

# The same samples give the same profile, whoever fits.
run_tune 2 --tp 8 "${shape[@]}" --device model:default --output "$work/p1" --resume
check "resuming a whole run times nothing" \
    [ "$(grep -cE ' (ll|bt|ht) [0-9.]+ us' "$work/err")" -le 12 ]
check "resuming a whole run: the same samples" \
    cmp -s "$work/p1/$file.samples.jsonl" "$work/p8/$file.samples.jsonl"
routes() { sed '/"evidence"/,$d' "$1"; }
same_routes() { [ "$(routes "$1")" = "$(routes "$2")" ]; }
check "resuming a whole run: the same routes" same_routes "$work/p1/$file.json" "$work/p8/$file.json"
run_tune 2 --tp 8 "${shape[@]}" --device model:default --output "$work/based" --base "$work/p8/$file.json"
check "--base: exit 0" [ "$rc" -eq 0 ]
check "--base: the same routes" same_routes "$work/based/$file.json" "$work/p8/$file.json"
run_tune 2 --tp 8 --hidden 512 --topk 4 --device model:default --output "$work/based" --base "$work/p8/$file.json"
check "--base of another shape: exit 3" [ "$rc" -eq 3 ]
check "--base of another shape: it says so" says "another shape"

# Faults. Each: exit code, and a word of the message.
fault() { # NAME CODE WORD ARGS...
    local name=$1 code=$2 word=$3
    shift 3
    run_tune 2 --tp 8 "${shape[@]}" --device "model:$faults/$name.json" --output "$work/$name" "$@"
    check "$name: exit $code" [ "$rc" -eq "$code" ]
    check "$name: it is named" says "$word"
}
routed() { grep -c "\"protocol\": \"$2\"" "$work/$1/$file.json"; }
fault wrong 5 "gives wrong results"
check "wrong: no route of the wrong protocol where it is wrong" \
    [ "$(sed -n '/"allreduce": \[/,/\]/p' "$work/wrong/$file.json" | grep -c '"bt"')" -eq 0 ]
fault wrong-tuning 5 "threads=256"
fault prepare 9 "does not compile"
check "prepare: no route of what cannot run" [ "$(routed prepare bt)" -eq 0 ]
fault launch 9 "was refused"
fault absent 9 "rank 5 did not arrive"
fault timeless 9 "no time: the last of 3 timings of it gave"
check "timeless: no route of what has no time" [ "$(routed timeless ll)" -eq 0 ]
check "timeless: where it has one it is routed" [ "$(routed timeless bt)" -gt 0 ]
check "timeless: no sample has a time that is none" \
    [ "$(jq -c 'select(.us and (.us | any(. == null or . <= 0 or . > 1e6)))' "$work/timeless/$file.samples.jsonl" | wc -l)" -eq 0 ]
# A device that is gone for good: what was measured until then is kept, and gone on from elsewhere.
fault gone 6 "the buffers cannot be made again after a failed candidate"
check "gone: no profile" no_profile "$work/gone"
check "gone: the samples are whole" whole_lines "$work/gone"
before=$(grep -c '"us": \[[0-9]' "$work/gone/$file.samples.jsonl")
check "gone: it says where they are" \
    says "$(($(wc -l <"$work/gone/$file.samples.jsonl") - 1)) samples are in $work/gone/$file.samples.jsonl; add --resume to go on from there"
check "gone: there are some" [ "$before" -gt 4 ]
run_tune 2 --tp 8 "${shape[@]}" --device model:default --output "$work/gone" --resume
check "gone: resumed elsewhere: exit 0" [ "$rc" -eq 0 ]
fault memory 0 "wrote" # 8192 tokens are not in this ladder
run_tune 2 --tp 8 --hidden 256 --topk 4 --tokens '64-8192*2' --device "model:$faults/memory.json" --output "$work/memory"
check "memory at 8192 tokens on one rank: exit 9" [ "$rc" -eq 9 ]
check "memory at 8192 tokens on one rank: it says what is tried instead" says "is tried up to"
fault slow-rank 0 "wrote"
check "a slow rank slows all: the same protocol order" \
    [ "$(grep -o '"protocol": "[a-z]*"' "$work/slow-rank/$file.json" | uniq | tr -d '\n')" = \
    "$(grep -o '"protocol": "[a-z]*"' "$work/p8/$file.json" | uniq | tr -d '\n')" ]

# The budget is a hard limit: here on the virtual clock.
run_tune 2 --tp 8 "${shape[@]}" --device model:default --output "$work/short" --budget 3
check "a short budget: exit 0" [ "$rc" -eq 0 ]
check "a short budget: says what stays unexplored or unmeasured" says "a larger --budget"
check "a short budget: keeps enough for the mix and both policies of every route" \
    [ "$(jq '[.evidence.mixed[]] | length' "$work/short/$file.json") $(jq '[.evidence.routes[][] | select(.shift_tokens == null)] | length' "$work/short/$file.json")" = "2 0" ]
run_tune 2 --tp 8 "${shape[@]}" --device model:default,noise=0.2 --output "$work/strict" --strict --noise 0.1 --budget 30
check "noise under --strict: exit 7" [ "$rc" -eq 7 ]
run_tune 2 "${shape[@]}" --pattern allreduce --device model:default --output "$work/half"
check "one pattern of two: no profile, exit 1" [ "$rc" -eq 1 ]
check "one pattern of two: it says which is lacking" says "nothing was timed for the finalize pattern"
run_tune 2 "${shape[@]}" --pattern finalize --resume --device model:default --output "$work/half"
check "the other pattern with --resume: exit 0" [ "$rc" -eq 0 ]
run_tune 2 --hidden 64,128 --topk 2,4 --tokens 1,16 --device model:default --output "$work/many" --format csv
check "several shapes: exit 0" [ "$rc" -eq 0 ]
check "several shapes: a profile each" [ "$(compgen -G "$work/many/*/*_bf16.json" | wc -l)" -eq 4 ]
check "several shapes: one CSV head" [ "$(grep -c '^pattern,' "$work/out")" -eq 1 ]
run_tune 2 --hidden 64 --tokens 1,16 --device model:default --output "$work/dense" --no-norm --no-residual
check "dense, norm and residual off: exit 0" [ "$rc" -eq 0 ]
check "dense, norm and residual off: the name says so" \
    [ -e "$work/dense/model-model/tp2_h64_bf16_nonorm_noresidual.json" ]
run_tune 2 "${shape[@]}" --device model:default --output "$work/jsonl" --format jsonl --quiet
check "jsonl: every line on stdout is JSON" python3 -c "
import json, sys
rows = [json.loads(line) for line in open('$work/out')]
assert rows and all(row['format'] == 'arfuse-results' for row in rows)
assert any(row['routed'] for row in rows)"
check "quiet: nothing on stderr" [ "$(grep -c '^arfuse-tune: ' "$work/err")" -eq 0 ]
finish
