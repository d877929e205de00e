#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317,SC2054 # functions that check calls; commas inside option values
# Bad luck while tuning with 4 ranks: killed, stopped and interrupted ranks, full and read-only
# folders, two tuners in one folder. The launcher is back within 10 s with a code other than 0 and
# one message of ours; samples are whole, no profile half made, nothing left behind.
set -u
. tests/support/tune.bash
# The model device with a real pause in each timing, so that there is a middle to hit.
slow=(--hidden 256 --topk 2 --device model:default,pause_seconds=0.0005,prepare_seconds=0
    --tokens '1-1024*2' --protocols ll,unfused --set ll.threads=128)

ended_early() { # what every bad end has in common
    check "$1: the launcher ends within 10 s" [ "$took" -lt 10000 ]
    check "$1: a code other than 0" [ "$rc" -ne 0 ]
    check "$1: one message" [ "$(messages)" -eq 1 ]
    check "$1: samples are whole" whole_lines "$2"
    check "$1: no profile" no_profile "$2"
    check "$1: nothing is left" nothing_left "$2"
}

kills=(2 0)
[ "${ARFUSE_TEST_LONG:-0}" = 1 ] && kills=(0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3)
for rank in "${kills[@]}"; do
    out=$work/kill$number
    launch 4 "${slow[@]}" --output "$out"
    samples_reach "$out" $((2 + RANDOM % 6))
    sleep "0.$((RANDOM % 10))"
    mark
    kill -9 "$(process_of "$rank")"
    await
    ended_early "kill -9 of rank $rank" "$out"
done

for signal in INT TERM; do
    out=$work/$signal
    launch 4 "${slow[@]}" --output "$out"
    samples_reach "$out" 3
    mark
    kill -"$signal" "$(pgrep -P "$launcher" mpirun)"
    await
    ended_early "SIG$signal to mpirun" "$out"
    check "SIG$signal to mpirun: the message says how to go on" says --resume
done

# Without a launcher the code is 130, and the run can be taken up.
out=$work/alone
"$tune" "${slow[@]}" --tp 4 --output "$out" >"$work/out" 2>"$work/err" &
launcher=$!
samples_reach "$out" 3
mark
kill -INT "$launcher"
await
check "SIGINT without mpirun: exit 130" [ "$rc" -eq 130 ]
check "SIGINT without mpirun: one message" [ "$(messages)" -eq 1 ]
check "SIGINT without mpirun: under a second" [ "$took" -lt 1000 ]
check "SIGINT without mpirun: samples are whole" whole_lines "$out"
"$tune" "${slow[@]}" --tp 4 --output "$out" --resume >"$work/out" 2>"$work/err"
rc=$?
check "resumed: exit 0" [ "$rc" -eq 0 ]
"$tune" "${slow[@]}" --tp 4 --output "$work/whole" >"$work/out" 2>"$work/err"
routes() { sed '/"evidence"/,$d' "$1"/*/*.json; }
same_routes() { [ -n "$(routes "$1")" ] && [ "$(routes "$1")" = "$(routes "$2")" ]; }
check "resumed: the same routes as without the interruption" same_routes "$out" "$work/whole"

# A rank that pauses for less than the limit is no failure; one that never comes back is.
out=$work/pause
launch 4 "${slow[@]}" --output "$out"
samples_reach "$out" 3
stopped=$(process_of 1)
kill -STOP "$stopped"
sleep 5
kill -CONT "$stopped"
await
check "SIGSTOP for 5 s: exit 0" [ "$rc" -eq 0 ]

if [ "${ARFUSE_TEST_LONG:-0}" = 1 ]; then
    out=$work/gone
    launch 4 "${slow[@]}" --output "$out" --wait-limit 1
    samples_reach "$out" 3
    mark
    kill -STOP "$(process_of 1)"
    await
    check "SIGSTOP for good: exit 6" [ "$rc" -eq 6 ]
    check "SIGSTOP for good: the watch names the process" says "process 1 of this node is behind"
    check "SIGSTOP for good: and those that wait" says "processes 0,2,3 wait;"
    check "SIGSTOP for good: the watch names the step" grep -qE ' tokens? by ' "$work/err"
    check "SIGSTOP for good: one message" [ "$(messages)" -eq 1 ]
    check "SIGSTOP for good: nothing is left" nothing_left "$out"
fi

# Two tuners in one folder: the second is refused, the first ends well.
out=$work/two
launch 2 "${slow[@]}" --output "$out"
first=$launcher
samples_reach "$out" 3
timeout 60 mpirun --oversubscribe -n 2 "$tune" "${slow[@]}" --output "$out" >"$work/out2" \
    2>"$work/err2" </dev/null
check "a second tuner in the folder: exit 1" [ $? -eq 1 ]
check "a second tuner in the folder: one message" \
    [ "$(grep -c '^arfuse-tune: .*another tuner' "$work/err2")" -eq 1 ]
wait "$first"
rc=$?
check "a second tuner in the folder: the first ends well" [ "$rc" -eq 0 ]

# The disk. A limit on the size of files would hit the launcher's own, so that is for a lone process;
# under the launcher it takes a small file system, where one may be mounted.
full() { # FOLDER
    check "disk full: exit 1" [ "$rc" -eq 1 ]
    check "disk full: the message names the file" says "samples.jsonl"
    check "disk full: one message" [ "$(messages)" -eq 1 ]
    check "disk full: samples are whole" whole_lines "$1"
    check "disk full: no profile" no_profile "$1"
    check "disk full: nothing is left" nothing_left "$1"
}
out=$work/limited
(
    ulimit -f 4
    exec "$tune" "${slow[@]}" --tp 4 --output "$out"
) >/dev/null 2>"$work/err" </dev/null
rc=$?
full "$out"
out=$work/full
mkdir -p "$out"
if mount -t tmpfs -o size=8k tmpfs "$out" 2>/dev/null; then
    run_tune 4 "${slow[@]}" --output "$out"
    full "$out"
    umount "$out"
fi

if [ "$(id -u)" -ne 0 ]; then
    out=$work/readonly
    mkdir -p "$out"
    chmod a-w "$out"
    run_tune 4 "${slow[@]}" --output "$out"
    check "read-only folder: exit 1" [ "$rc" -eq 1 ]
    check "read-only folder: one message" [ "$(messages)" -eq 1 ]
else
    # Root may write anywhere but where the kernel says no.
    run_tune 4 "${slow[@]}" --output /proc/arfuse
    check "a folder that cannot be made: exit 1" [ "$rc" -eq 1 ]
    check "a folder that cannot be made: one message" [ "$(messages)" -eq 1 ]
fi
"$tune" --hidden 256 --device model:default --tokens 1,2 --tp 2 --output "$work/stdout" >/dev/full 2>"$work/err"
rc=$?
check "stdout full: exit 1" [ "$rc" -eq 1 ]
check "stdout full: it says so" says "stdout does not take"
finish
