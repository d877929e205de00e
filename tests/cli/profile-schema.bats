#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The JSON Schema beside the profiles and the reader hold each other in step: what the schema
# refuses, the reader refuses. The other way round the schema cannot follow everywhere; the defects
# beyond it are named in tests/fixtures/profiles/bad.tsv.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    program=${BUILD:-build}/arfuse-profile
    schema=profiles/schema/arfuse-profile-v1.schema.json
    fixtures=tests/fixtures/profiles
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'from jsonschema import Draft202012Validator' 2>/dev/null; then
            oracle() { "$python" tests/support/schema_oracle.py "$@"; }
            return
        fi
    done
    skip "no python3-jsonschema"
}

@test "the schema accepts every good profile" {
    run oracle judge "$schema" "$fixtures"/good/*.json
    [ "$status" = 0 ]
    [ "$(grep -c '^accepted ' <<<"$output")" = "$(ls "$fixtures"/good/*.json | wc -l)" ]
    [ "$(grep -c '^refused ' <<<"$output")" = 0 ]
}

@test "every profile in the tree is accepted by schema and reader" {
    mapfile -t files < <(find profiles -name '*.json' ! -name '*.schema.json')
    [ ${#files[@]} -gt 0 ] || skip "no profiles yet"
    run oracle judge "$schema" "${files[@]}"
    [ "$status" = 0 ]
    [ "$(grep -c '^refused ' <<<"$output")" = 0 ]
    run "$program" check "${files[@]}"
    [ "$status" = 0 ]
}

@test "the schema sees exactly the defects that the table says it sees" {
    wrong=0
    grep -v "$(printf '\ttext\t')" "$fixtures/bad.tsv" | cut -f1 | sed "s|.*|$fixtures/bad/&.json|" >"$BATS_TEST_TMPDIR/names"
    mapfile -t names <"$BATS_TEST_TMPDIR/names"
    oracle judge "$schema" "${names[@]}" >"$BATS_TEST_TMPDIR/judged"
    while IFS=$'\t' read -r name seen message; do
        [ "$seen" != text ] || continue
        said=$(grep -F " $fixtures/bad/$name.json" "$BATS_TEST_TMPDIR/judged")
        case $seen:$said in
        schema:refused* | beyond:accepted*) ;;
        *) echo "$name: table says $seen, the schema says $said" && wrong=1 ;;
        esac
    done <"$fixtures/bad.tsv"
    [ "$wrong" = 0 ]
}

@test "what the schema refuses of edited profiles, the reader refuses" {
    count=1500
    [ -z "${ARFUSE_TEST_LONG-}" ] || count=30000
    mkdir "$BATS_TEST_TMPDIR/edited"
    oracle mutate "$schema" "$BATS_TEST_TMPDIR/edited" "$count" "$fixtures"/good/*.json >"$BATS_TEST_TMPDIR/judged"
    find "$BATS_TEST_TMPDIR/edited" -name '*.json' -print0 |
        xargs -0 "$program" check >"$BATS_TEST_TMPDIR/accepted" 2>"$BATS_TEST_TMPDIR/refused" || true
    sed -n 's/^refused //p' "$BATS_TEST_TMPDIR/judged" | sort >"$BATS_TEST_TMPDIR/by_schema"
    sed -n 's/: ok, .*//p' "$BATS_TEST_TMPDIR/accepted" | sort >"$BATS_TEST_TMPDIR/by_reader"
    # both judged something both ways, or this shows nothing
    [ "$(wc -l <"$BATS_TEST_TMPDIR/by_schema")" -gt $((count / 4)) ]
    [ "$(wc -l <"$BATS_TEST_TMPDIR/by_reader")" -gt $((count / 100)) ]
    too_lenient=$(comm -12 "$BATS_TEST_TMPDIR/by_schema" "$BATS_TEST_TMPDIR/by_reader")
    for file in $too_lenient; do echo "the schema refuses, the reader accepts: $(cat "$file")"; done
    [ -z "$too_lenient" ]
}
