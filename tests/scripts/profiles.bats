#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What scripts write into profiles is what is committed there.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    command -v python3 >/dev/null || skip "no python3"
}

@test "import-published writes the committed profiles" {
    scripts/import-published "$BATS_TEST_TMPDIR/published"
    diff -r "$BATS_TEST_TMPDIR/published" profiles/published
}

@test "the coverage table lists the committed profiles" {
    scripts/coverage --check
}

@test "a table that misses a profile is found out" {
    mkdir "$BATS_TEST_TMPDIR/tree" && cp -r scripts profiles "$BATS_TEST_TMPDIR/tree"
    rm "$BATS_TEST_TMPDIR/tree/profiles/published/flashinfer/default/tp8_h8192_k10_bf16.json"
    run "$BATS_TEST_TMPDIR/tree/scripts/coverage" --check
    [ "$status" -eq 1 ]
}

@test "scripts refuse options that they do not have" {
    run scripts/import-published --nope
    [ "$status" -eq 2 ]
    run scripts/coverage --nope
    [ "$status" -eq 2 ]
}
