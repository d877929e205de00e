#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks every model, and that every twin with a planted fault fails. Prints TAP; states explored
# stand behind each line, and once more for tests/run to show. Needs spin and gcc. Run alone: make
# modelcheck
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

number=0
declare -A held fell
check() { # EXPECTED MODEL -DNAME...
    local expected=$1 model=$2 errors states
    shift 2
    number=$((number + 1))
    # VECTORSZ: bytes of a state; -m: depth, far beyond what a bounded number of calls can reach.
    if spin -a "$@" "$here/$model.pml" >log 2>&1 &&
        gcc -O2 -w -DSAFETY -DVECTORSZ=4096 -o pan pan.c >>log 2>&1; then
        timeout 100 ./pan -m500000 >log 2>&1
    fi
    errors=$(sed -nE 's/.*errors: ([0-9]+).*/\1/p' log)
    states=$(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' log)
    if [ "$expected" = holds ] && [ "$errors" = 0 ] && ! grep -qE 'max search depth|out of memory' log; then
        echo "ok $number - $model $* holds, $states states"
        held[$model]+=" $states"
    elif [ "$expected" = fails ] && [ "${errors:-0}" -gt 0 ]; then
        echo "ok $number - $model $* fails as it must: $(grep -m1 '^pan:1:' log)"
        fell[$model]+=" ${1#-DTWIN_}"
    else
        echo "not ok $number - $model $*: expected that it $expected"
        sed 's/^/# /' log
    fi
}

check holds ll -DRANKS=2 -DCALLS=5 -DTOKENS=2
check holds ll -DRANKS=3 -DCALLS=3 -DTOKENS=1
for twin in NEXT COUNT EARLY ONE ZERO; do
    check fails ll -DTWIN_$twin -DRANKS=2 -DCALLS=6 -DTOKENS=2
done
check holds bt -DRANKS=2 -DCALLS=6 -DTOKENS=2
check holds bt -DRANKS=3 -DCALLS=4 -DTOKENS=2
check holds bt -DRANKS=2 -DCALLS=4 -DTOKENS=2 -DBLOCKS=2
for twin in OWNER NEXT ONE; do
    check fails bt -DTWIN_$twin -DRANKS=2 -DCALLS=5 -DTOKENS=2
done
for twin in EARLY QUEUED LAST; do
    check fails bt -DTWIN_$twin -DRANKS=2 -DCALLS=4 -DTOKENS=2 -DBLOCKS=2
done
check holds ht -DRANKS=2 -DCALLS=4 -DTOKENS=2
check holds ht -DRANKS=2 -DCALLS=3 -DTOKENS=3 -DGROUP=2 -DSHARDS=2
check holds ht -DRANKS=3 -DCALLS=2 -DTOKENS=2
for twin in OWNERS EARLY ZERO OWN LATE PUSH; do
    check fails ht -DTWIN_$twin -DRANKS=2 -DCALLS=3 -DTOKENS=2
done
for model in ll bt ht; do
    echo "# seen: $model holds in${held[$model]-} states; twins that fail as they must:${fell[$model]-}"
done
echo "1..$number"
