#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# arfuse-profile under valgrind, over good and bad files: no read of what was not written, no byte
# lost, also where a file is refused.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    command -v valgrind >/dev/null || skip "no valgrind"
    # A sanitizer's own allocator stands in for malloc.
    ! grep -qE '__(asan|tsan)_init' "$program" || skip "a sanitizer build"
    good=tests/fixtures/profiles/good
    bad=tests/fixtures/profiles/bad
}

clean() { # EXIT ARGUMENT...
    local wanted=$1
    shift
    # argp keeps what it holds when it ends the program itself, on wrong use: reachable, not lost.
    run valgrind --quiet --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite,indirect,possible "$program" "$@"
    [ "$status" -eq "$wanted" ] || {
        echo "$*: exit $status"
        echo "$output"
        return 1
    }
}

@test "every good profile" {
    clean 0 check "$good"/*.json
    clean 0 show "$good/measured.json"
    clean 0 explain --tokens 500 "$good/measured.json"
}

@test "every bad profile" {
    clean 3 check "$bad"/*.json
    clean 3 show "$bad/duplicate_deep_in_evidence.json"
}

@test "carried over, compared and written out" {
    clean 0 retarget --hidden 4096 --tp 8 --topk 8 "$good/measured.json"
    clean 1 diff "$good/measured.json" "$good/default.json"
    clean 0 export --to csv "$good/measured.json"
    clean 0 export --to markdown "$good/measured.json"
    clean 2 explain "$good/measured.json"
}
