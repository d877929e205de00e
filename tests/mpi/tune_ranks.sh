#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2054 # functions that check calls; commas inside option values
# Ranks that do not see the same files, and tuners that share a folder.
set -u
. tests/support/tune.bash
shape=(--hidden 512 --topk 2 --device model:default,prepare_seconds=0 --tokens 1-16*2
    --protocols ll,unfused --set ll.threads=128)
file=model-model/tp2_h512_k2_bf16.samples.jsonl

# Each of two ranks has a folder of its own: $1 for rank 0, $2 for rank 1.
two_folders() {
    timeout 60 mpirun --oversubscribe -n 1 "$tune" "${shape[@]}" --output "$1" --resume : \
        -n 1 "$tune" "${shape[@]}" --output "$2" --resume >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
every_point() { # five token counts of two patterns, and those between that refining asked for
    [ "$(grep -oE '^\{ "pattern": "[a-z]+", "tokens": (1|2|4|8|16),' "$1" | sort -u | wc -l)" -eq 10 ]
}
run_tune 2 "${shape[@]}" --output "$work/whole"
check "samples to resume from" [ "$rc" -eq 0 ]

# Rank 0 alone has half of them.
mkdir -p "$work/half/model-model" "$work/none"
head -n 6 "$work/whole/$file" >"$work/half/$file"
two_folders "$work/half" "$work/none"
check "samples that rank 0 alone can read: exit 0" [ "$rc" -eq 0 ]
check "samples that rank 0 alone can read: the first six lines stay" \
    cmp -s <(head -n 6 "$work/whole/$file") <(head -n 6 "$work/half/$file")
check "samples that rank 0 alone can read: they are taken up" says "5 samples of $work/half/$file are taken up"
check "samples that rank 0 alone can read: the rest is measured" every_point "$work/half/$file"
check "samples that rank 0 alone can read: rank 1 writes nothing" [ -z "$(ls -A "$work/none")" ]

# Rank 1 has others, and all of them: rank 0 decides.
rm -rf "$work/half/model-model/"*.json
head -n 3 "$work/whole/$file" >"$work/half/$file"
two_folders "$work/half" "$work/whole"
check "other samples on rank 1: exit 0" [ "$rc" -eq 0 ]
check "other samples on rank 1: rank 0's are taken up" says "2 samples of $work/half/$file are taken up"
check "other samples on rank 1: rank 0's are completed" every_point "$work/half/$file"
check "other samples on rank 1: a profile" "$BUILD/arfuse-profile" check "$work/half"/*/*_bf16.json

# Two tuners for two shapes in one folder at the same time: both profiles are there, whole.
slow=(--topk 2 --device model:default,pause_seconds=0.0005,prepare_seconds=0 --tokens 1-64*2
    --protocols ll,unfused --set ll.threads=128 --output "$work/shared")
timeout 100 mpirun --oversubscribe -n 2 "$tune" --hidden 256 "${slow[@]}" >"$work/out2" 2>"$work/err2" </dev/null &
other=$!
run_tune 2 --hidden 512 "${slow[@]}"
wait "$other"
other=$?
check "two shapes at once: both end well" [ "$rc $other" = "0 0" ]
check "two shapes at once: both profiles are valid" "$BUILD/arfuse-profile" check \
    "$work/shared/model-model/tp2_h256_k2_bf16.json" "$work/shared/model-model/tp2_h512_k2_bf16.json"
check "two shapes at once: nothing is left" nothing_left "$work/shared"
finish
