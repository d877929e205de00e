#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Replays the corpus of every target (and what else is at hand of its kind) with the build under test.
set -u
number=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

replay() { # NAME FILE...
    local name=$1 status
    shift
    number=$((number + 1))
    "$BUILD/tests/${name}_replay" "$@" >"$log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        echo "ok $number - $name: $# inputs"
    else
        echo "not ok $number - $name: exit $status"
        tail -n 40 "$log" | sed 's/^/# /'
    fi
}

mapfile -t profiles < <(find profiles tests/fixtures/profiles -name '*.json' -not -path '*/schema/*' | sort)
for target in tests/fuzz/*_fuzz.c; do
    name=$(basename "$target" _fuzz.c)
    more=()
    [ "$name" != profile ] || more=("${profiles[@]}")
    replay "$name" tests/fuzz/corpus/"$name"/* "${more[@]}"
done
echo "1..$number"
