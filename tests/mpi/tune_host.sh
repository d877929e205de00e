#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions that check calls
# The main job on the host device with 2, 4 and 8 ranks: a profile that `check` takes, every protocol
# verified and timed, in both patterns. Shorter here by shape and
# budget; the long run takes the shape and the budget of the README.
set -u
. tests/support/tune.bash
sizes=(2 4 8)
shape=(--hidden 2048 --topk 4)
file=h2048_k4_bf16
budget=(--budget 20 --tokens '1,8,32')
if [ "${ARFUSE_TEST_LONG:-0}" = 1 ]; then
    shape=(--hidden 6144 --topk 10)
    file=h6144_k10_bf16
    budget=()
fi

seconds_at_most() { [ "$took" -lt $(($1 * 1000)) ]; }
all_protocols() { # of both patterns, timed, none wrong or failed
    local pattern protocol
    for pattern in allreduce finalize; do
        for protocol in ll bt ht unfused; do
            grep -q "\"pattern\": \"$pattern\".*\"protocol\": \"$protocol\".*\"outcome\": \"timed\"" "$work/out" ||
                return 1
        done
    done
    grep -q '"protocol": "separate"' "$work/out" && ! grep -qE '"outcome": "(wrong|failed)"' "$work/out"
}
for ranks in "${sizes[@]}"; do
    run_tune "$ranks" "${shape[@]}" --device host --output "$work/$ranks" --format jsonl "${budget[@]}"
    check "$ranks ranks: exit 0" [ "$rc" -eq 0 ]
    check "$ranks ranks: within two minutes" seconds_at_most 120
    check "$ranks ranks: all protocols of both patterns" all_protocols
    check "$ranks ranks: the profile is valid" "$BUILD/arfuse-profile" check \
        "$work/$ranks/host-shm/tp${ranks}_$file.json"
    check "$ranks ranks: nothing is left" nothing_left "$work/$ranks"
done
cores=$(nproc)
if [ "$cores" -lt 8 ]; then
    check "more ranks than cores: the times are called unreliable" says "unreliable"
fi

# Ranks as threads of one process, without a launcher.
mark
"$tune" --hidden 512 --topk 2 --tp 4 --device host --output "$work/threads" --budget 12 --tokens 1,8 \
    >"$work/out" 2>"$work/err"
rc=$?
check "4 ranks in one process: exit 0" [ "$rc" -eq 0 ]

# A rank that is killed: the others do not wait for it.
launch 4 --hidden 6144 --topk 10 --device host --output "$work/kill"
samples_reach "$work/kill" 2
mark
kill -9 "$(process_of 1)"
await
check "kill -9 of rank 1: the launcher ends within 10 s" seconds_at_most 10
check "kill -9 of rank 1: a code other than 0" [ "$rc" -ne 0 ]
check "kill -9 of rank 1: nothing is left" nothing_left "$work/kill"
finish
