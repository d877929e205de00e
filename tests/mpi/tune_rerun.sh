#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2054 # functions that check calls; commas inside option values
# A tune into a folder that has something already: the old profile and its samples stay until the
# new ones replace both; what cannot be replaced is refused before anything is measured.
set -u
. tests/support/tune.bash
shape=(--hidden 256 --topk 2 --tokens '1-64*2' --protocols ll,unfused --set ll.threads=128)
quick=(--device model:default,prepare_seconds=0)
slow=(--device model:default,pause_seconds=0.002,prepare_seconds=0)
out=$work/p
profile=$out/model-model/tp2_h256_k2_bf16.json
samples=${profile%.json}.samples.jsonl
new_reaches() { # LINES
    for _ in $(seq 300); do
        [ -e "$samples.new" ] && [ "$(wc -l <"$samples.new")" -ge "$1" ] && return 0
        sleep 0.1
    done
    return 1
}
pair_stands() { cmp -s "$profile" "$work/old.json" && cmp -s "$samples" "$work/old.jsonl"; }
nothing_measured() { ! says "[1/"; }

run_tune 2 "${shape[@]}" "${quick[@]}" --output "$out"
check "a first run: exit 0" [ "$rc" -eq 0 ]
cp "$profile" "$work/old.json"
cp "$samples" "$work/old.jsonl"

launch 2 "${shape[@]}" "${slow[@]}" --output "$out" --seed 2
new_reaches 4
mark
kill -INT "$(pgrep -P "$launcher" mpirun)"
await
check "an interrupted rerun: a code other than 0" [ "$rc" -ne 0 ]
check "an interrupted rerun: profile and samples stand as they were" pair_stands
check "an interrupted rerun: the message names where its samples are" says "$samples.new"
kept=$(wc -l <"$samples.new")

# A fresh run in its place says what it will cost, and costs nothing until it has measured something.
launch 2 "${shape[@]}" --device "model:default,prepare_seconds=30,pause_seconds=1" --output "$out" --seed 3
for _ in $(seq 300); do says "--resume" && break; sleep 0.1; done
kill -INT "$(pgrep -P "$launcher" mpirun)"
await
check "a fresh run after it: says how many samples are at stake, and how to keep them" \
    says "$((kept - 1)) samples that an interrupted run left in $samples.new will make way for this run's first one; to keep them, end it now and add --resume"
check "a fresh run that ends at once: they are all there" [ "$(wc -l <"$samples.new")" -eq "$kept" ]
check "a fresh run that ends at once: profile and samples stand as they were" pair_stands

run_tune 2 "${shape[@]}" "${quick[@]}" --output "$out" --seed 2 --resume
check "resumed: exit 0" [ "$rc" -eq 0 ]
check "resumed: the interrupted run's samples are taken up" says "$((kept - 1)) samples of $samples.new are taken up"
check "resumed: they are the profile's samples now" [ ! -e "$samples.new" ]
check "resumed: under the new seed" grep -q '"seed": 2' "$samples"
check "resumed: nothing is left" nothing_left "$out"

# The samples beside a profile may be those that it starts from.
run_tune 2 "${shape[@]}" "${quick[@]}" --output "$out" --base "$profile"
check "a base in the same place: exit 0" [ "$rc" -eq 0 ]
check "a base in the same place: its samples are taken up" grep -qE 'arfuse-tune: [0-9]+ samples of .* are taken up' "$work/err"
check "a base in the same place: they are kept" [ "$(wc -l <"$samples")" -gt 10 ]

refused() { # NAME WORDS
    check "$1: exit 3" [ "$rc" -eq 3 ]
    check "$1: one message" [ "$(messages)" -eq 1 ]
    check "$1: it says so" says "$2"
    check "$1: nothing was measured" nothing_measured
}
cp "$samples" "$work/old.jsonl"
sed 's/"top_k": 2/"top_k": 3/' "$work/old.json" >"$profile"
cp "$profile" "$work/foreign.json"
run_tune 2 "${shape[@]}" "${quick[@]}" --output "$out"
refused "a profile of another key" "holds the profile of another key and is not replaced"
# Of the second shape, too, before the first is measured.
run_tune 2 "${shape[@]:2}" --hidden 512,256 "${quick[@]}" --output "$out"
refused "a profile of another key, second shape" "holds the profile of another key and is not replaced"
run_tune 1 "${shape[@]}" --tp 2 "${quick[@]}" --output "$out" --dry-run
check "a profile of another key, dry run: exit 3" [ "$rc" -eq 3 ]
echo mine >"$profile"
run_tune 2 "${shape[@]}" "${quick[@]}" --output "$out"
refused "no profile" "is not replaced; move it away"
check "no profile: it stands" [ "$(cat "$profile")" = mine ]
check "no profile: the samples stand" cmp -s "$samples" "$work/old.jsonl"
cp "$work/old.json" "$profile"
echo mine >"$samples"
run_tune 2 "${shape[@]}" "${quick[@]}" --output "$out"
refused "no samples" "move it away"
check "no samples: the file stands" [ "$(cat "$samples")" = mine ]
finish
