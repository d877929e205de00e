#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the tests of arfuse-tune under mpirun share: TAP lines, a launcher, a run that is looked at.
# shellcheck disable=SC2034 # whoever sources it reads them
# Sourced from the top folder, where tests/run stands.

BUILD=${BUILD:-build}
tune=$PWD/$BUILD/arfuse-tune
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
bad=0

# check NAME CONDITION...: one TAP line; a false condition shows what the last run printed.
check() {
    local name=$1
    shift
    number=$((number + 1))
    if "$@"; then
        echo "ok $number - $name"
    else
        bad=1
        echo "not ok $number - $name"
        printf '# rc %s, false: %s\n' "${rc:-none}" "$*"
        [ ! -e "$work/err" ] || tail -n 25 "$work/err" | sed 's/^/# err: /'
        [ ! -e "$work/out" ] || tail -n 10 "$work/out" | sed 's/^/# out: /'
    fi
}

finish() {
    echo "1..$number"
    exit $bad
}

# From here on stand-ins play libcuda and libnccl (tests/fakecuda). Skips the test where the build
# has none.
use_standins() {
    if [ ! -e "$BUILD/tests/fakecuda/libcuda.so.1" ]; then
        echo "1..1"
        echo "ok 1 # SKIP built without the CUDA device"
        exit 0
    fi
    export LD_LIBRARY_PATH=$PWD/$BUILD/tests/fakecuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export XDG_CACHE_HOME=$work
}

# launch RANKS ARGS...: starts in the background; $launcher is mpirun's process id.
launch() {
    local ranks=$1
    shift
    timeout -k 5 "${limit:-120}" mpirun --oversubscribe -n "$ranks" "$tune" "$@" \
        >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
}

# Waits for it: $rc is the exit code, $took the seconds since `mark`.
mark() { began=$(date +%s%N); }
await() {
    wait "$launcher"
    rc=$?
    took=$((($(date +%s%N) - began) / 1000000))
}
run_tune() {
    mark
    launch "$@"
    await
}

# The process of a rank of the running job.
process_of() {
    local p
    for p in $(pgrep -f "^$tune "); do
        # Only ranks of this test's own job have its folder on their command line.
        tr '\0' '\n' <"/proc/$p/cmdline" 2>/dev/null | grep -qF "$work" || continue
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1" || continue
        echo "$p"
        return 0
    done
    return 1
}

# Waits until a samples file below a folder has that many lines; false after 30 s.
samples_reach() { # FOLDER LINES
    for _ in $(seq 300); do
        [ "$(cat "$1"/*/*.samples.jsonl 2>/dev/null | wc -l)" -ge "$2" ] && return 0
        sleep 0.1
    done
    return 1
}

lines() { grep -c "^arfuse-tune: " "$work/err"; }
says() { grep -qF -- "$1" "$work/err"; }
# Messages that are no progress and no first words: what an error leaves.
messages() { grep '^arfuse-tune: ' "$work/err" | grep -cvE '^arfuse-tune: (\[[0-9]+/|device |[0-9]+ ranks share )'; }

# Nothing of the job is left: no process, and below a folder no file but profiles and samples.
nothing_left() {
    for _ in $(seq 30); do
        process_left || break
        sleep 0.1
    done
    ! process_left && [ -z "$(find "$1" -type f ! -name '*.json' ! -name '*.samples.jsonl')" ]
}
process_left() {
    local p
    for p in $(pgrep -f "^$tune "); do
        tr '\0' '\n' <"/proc/$p/cmdline" 2>/dev/null | grep -qF "$work" && return 0
    done
    return 1
}
whole_lines() { # every samples file below a folder ends in a newline
    local f
    for f in "$1"/*/*.samples.jsonl; do
        [ -s "$f" ] && [ -z "$(tail -c 1 "$f")" ] || return 1
    done
}
no_profile() { ! compgen -G "$1/*/*.json" >/dev/null; }
