#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The table of public reports in tests/README.md: every test that it names exists and runs.

setup() {
    cd "$BATS_TEST_DIRNAME/.." || exit 1
    rows=$(grep -E '^\| [0-9]+ \| \[' README.md)
}

@test "each report stands there once, with its source and where it is tested" {
    [ "$(wc -l <<<"$rows")" -eq 74 ]
    [ "$(cut -d'|' -f2 <<<"$rows" | sort -u | wc -l)" -eq 74 ]
    run grep -vE '^\| [0-9]+ \| \[[^]]+#[0-9]+\]\(https://github\.com/[^)]+\) \| [^|]+ \| [^|]+ \|$' <<<"$rows"
    echo "$output"
    [ "$status" -eq 1 ]
}

@test "every test of the table exists" {
    missing=$(python3 - <<'END'
import re

def names_of(path):
    """What a program runs: the functions that it registers, or its text where names are strings."""
    text = open(path).read()
    if path.startswith('unit/'):
        return set(re.findall(r'\b(?:cmocka_unit_test\w*|CASE|\w*TEST)\((\w+)', text))
    if path.endswith('.bats'):
        return re.findall(r'^@test "(.*)" \{$', text, re.M)
    return [text]

for line in open('README.md'):
    if not re.match(r'\| \d+ \| \[', line):
        continue
    for part in re.findall(r'`([^`]+)`', line):
        path, colon, name = part.partition(': ')
        if not re.match(r'\w+/[\w.-]+$', path):
            continue
        try:
            names = names_of(path)
        except OSError:
            print('no file', path)
            continue
        if colon and not (name in names if path.startswith('unit/') else any(name in n for n in names)):
            print('no test', part)
END
    )
    echo "$missing"
    [ -z "$missing" ]
}
