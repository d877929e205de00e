#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the units and runs all cases; then the twins, copies of the kernels with a planted fault
# each, which must be found. Prints TAP. EMULATOR_CASE: one case by its name, and no twins.
set -u
here=$(cd "$(dirname "$0")" && pwd)
kernels=$here/../../kernels
program=$BUILD/tests/emulator_test
units=$BUILD/tests/emulator
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # KERNELS FOLDER [CASE]
    local from=$1 to=$2
    shift 2
    mkdir -p "$to"
    "$program" --units "$@" | sort -u | xargs -P2 -L1 "$here/compile" "$from" "$to"
}

only=()
[ -z "${EMULATOR_CASE:-}" ] || only=("$EMULATOR_CASE")
build "$kernels" "$units" "${only[@]}" || {
    echo 'not ok 1 - the kernels compile for the CPU' && echo 1..1
    exit 1
}
if [ ${#only[@]} -gt 0 ]; then
    "$program" "$units" "${only[@]}"
    exit
fi
"$program" "$units" >"$work/log" 2>&1 &
cases=$!

number=0
twin() { # NAME CASE FILE SED: the fault, and the case that finds it
    local name=$1 case=$2 file=$3 edit=$4 log=$work/$1.log
    number=$((number + 1))
    rm -rf "$work/kernels" "$work/units"
    cp -r "$kernels" "$work/kernels"
    sed -i -E "$edit" "$work/kernels/$file"
    if cmp -s "$kernels/$file" "$work/kernels/$file"; then
        echo "not ok $number - twin $name: the fault is not planted: $file has changed"
    elif ! build "$work/kernels" "$work/units" "$case" >"$log" 2>&1; then
        echo "not ok $number - twin $name: does not compile"
        sed 's/^/# /' "$log"
    elif "$program" "$work/units" "$case" >"$log" 2>&1; then
        echo "not ok $number - twin $name is not found"
    elif ! grep -q '^# seed' "$log"; then # it must be the kernels that fail
        echo "not ok $number - twin $name: no run fails"
        sed 's/^/# /' "$log"
    else
        echo "ok $number - twin $name is found: $(sed -nE 's/^# (seed.{1,140}).*/\1/p' "$log" | head -n 1)"
    fi
}

ll='ll, each rank a process'
bt='bt, each rank a process'
unfused='unfused, each rank a process'
twin 'no re-arming' "$ll" gather.cuh '/arf_store\(at \+ i \* stride, ARF_SENTINEL_PACK\)/s/arf_store.*/(void)0;/'
twin 'publish before the wait' "$ll" ll_publish.cu '/arf_grid_wait\(\);/d'
twin 'trigger before the wait' "$ll" ll_publish.cu 's/^( *)arf_grid_wait\(\);/arf_grid_trigger(); arf_grid_wait();/'
twin 're-arm the next generation' "$bt" bt_stages.cuh \
    's/arf_store\(at, ARF_SENTINEL_PACK\)/arf_store(team.peer[rank] + arf_bt_row(team, epoch + 1, token, pack), ARF_SENTINEL_PACK)/'
twin 'bt in one kernel: the first warp reduces nothing' "$bt" bt_single.cu \
    's/\(warp \* blocks \+ block\) \* 32/(warp * blocks + block + 1) * 32/'
twin 'no release' "$unfused" unfused.cuh 's/arf_send_release\(/arf_send_word(/; s/arf_count\(/arf_count_relaxed(/'
ht='ht: two processes, between other protocols'
twin 'ht: the last rank is not awaited' "$ht" ht_reduce.cuh 's/source < ARF_R && there/source < ARF_R - 1 \&\& there/'
twin 'ht: marks start anew' "$ht" ht.cu 's/now\.epoch,/0,/'
if [ -n "${ARFUSE_TEST_LONG:-}" ]; then
    twin 'ht: told before it is sent' "$ht" ht_contribute.cuh '/void arf_ht_contribute/,/^}/s/arf_warp_barrier\(\);//'
    twin 'ht: rows without release' "$ht" ht_reduce.cuh 's/arf_send_release\(/arf_send_word(/'
    twin 'ht: marked before all lanes are done' "$ht" ht_reduce.cuh '/all lanes. packs/s/arf_warp_barrier\(\);//'
    twin 'ht: the last shard is not awaited' "$ht" ht_norm.cuh 's/ARF_NORM_ROWS \* shards && there/ARF_NORM_ROWS * shards - 1 \&\& there/'
    twin 'ht: waits before all is published' "$ht" ht.cu 's/group, may_wait\)/group, true)/'
    twin 'ht: a stage is left before it is read' "$ht" ht_contribute.cuh '/arf_ht_leave\(arf_ht_shared/,/^}/s/arf_warp_barrier\(\);//'
    twin 'ht: all lanes wait for a stage' "$ht" ht_contribute.cuh 's/^( *)if \(threadIdx.x % 32 == 0\) \{/    arf_phase_wait(\&shared.empty[ring.stage], ring.parity ^ 1); if (threadIdx.x % 32 == 0) {/'
    twin 'ht: -0.0 is sent' "$ht" ht_contribute.cuh '/arf_fragment_make_sendable/d'
    twin 'one generation' "$ll" arguments.h 's/(define ARF_MAILBOX_GENERATIONS) 3/\1 1/'
    twin 'arrival by one word' "$ll" numerics.cuh 's/return arf_least_halves\(arf_least_halves\(least.*/return arf_least_halves(least, v.x);/; /arf_least_halves\(v.z, v.w\)\);/d'
    twin 'slots without fma' 'no norm' fragment.cuh 's/sum\[i\] = arf_fma\(factor, (.*), sum\[i\]\);/sum[i] = arf_add(arf_mul(factor, \1), sum[i]);/'
    twin 'one copy of the sums' "$ll" row.cuh 's/turn \^= 1;/turn = 0;/'
    twin 'no wait for the cluster' "$ll" row.cuh '/now.ended = /,/^}/s/arf_cluster_wait\(\);/(void)0;/'
    twin 'first block ends the epoch' "$bt" row.cuh 's/now\.ended == \(unsigned\)arf_row_step\(\) \* gridDim\.y/now.ended == 1/'
    twin 'no barrier before the count' "$unfused" unfused.cuh '0,/arf_block_barrier\(\);/s//;/'
    twin '-0.0 is sent' "$ll" contribute.cuh '/arf_fragment_make_sendable\(f\);/d'
    twin 'rows left as they are' "$ll" row.cuh 's/arf_store\(\(arf_pack \*\)own.norm_out \+ at, ARF_NAN_PACK\)/(void)0/'
    twin 'bt in one kernel: sends before the call before has ended' "$bt" bt_single.cu '/arf_grid_wait\(\);/d'
    twin 'bt in one kernel: every other round of packs' 'wide rows' bt_single.cu \
        's/step = blocks \* blockDim\.x;/step = blocks * blockDim.x * 2;/'
    twin 'released before the wait' 'two processes of two ranks' bt_publish.cu \
        's/^( *)arf_grid_wait\(\);/\1if (call.flags \& ARF_TRIGGER_EARLY) { arf_grid_trigger(); }\n&/'
    twin 'owner of another slicing' "$bt" bt.cuh 's/return ARF_SLICES \? pack \/ ARF_BT_WIDTH : /(void)pack; return /'
fi
wait "$cases"
cat "$work/log"
echo "1..$number"
