#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Manual pages and completion say what the programs' own tables say, no more and no less.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    build=$PWD/${BUILD:-build}
}

# the long options of a help text
of_help() {
    sed -nE 's/^ {1,8}(-[A-Za-z?], )?(--[a-z][a-z-]*)(.*)/\2/p' | sort -u
}

# The options that a page has an entry for. -T man gives plain words whatever the terminal.
of_page() {
    grep -E '^\.It Fl -' "$1" | sed -E 's/^\.It Fl (-[a-z-]+).*/-\1/' | sort -u
}

@test "pages of the programs pass the linter" {
    command -v mandoc >/dev/null || skip "no mandoc"
    cd src/man # where the pages find each other
    run mandoc -T lint arfuse-tune.1 arfuse-profile.1 arfuse-profile.5
    # other packages' pages may not be installed, or not be indexed
    left=$(grep -vE 'mandoc.db|referenced manual not found: Xr (mpirun|gnuplot)' <<<"$output" || true)
    echo "$left"
    [ -z "$left" ]
}

@test "arfuse-tune(1) has an entry for each option of --help, and for no other" {
    help=$("$build/arfuse-tune" --help | of_help)
    [ "$(wc -l <<<"$help")" -ge 30 ]
    diff <(echo "$help") <(of_page src/man/arfuse-tune.1)
}

@test "arfuse-tune(1) has the exit codes of --help" {
    codes=$("$build/arfuse-tune" --help | sed -n '/^Exit:/,$p' | tr '\n' ' ' | grep -oE '(: |, )[0-9]+ ' | tr -cd '0-9 ')
    [ "$(wc -w <<<"$codes")" -ge 11 ]
    for code in $codes; do
        grep -qx "\.It $code" src/man/arfuse-tune.1 || { echo "$code"; false; }
    done
}

@test "arfuse-profile(1) names every verb and every option of each" {
    verbs=$("$build/arfuse-profile" --help | sed -n '/^Verbs/,/^$/p' | sed -nE 's/^  ([a-z]+) .*/\1/p')
    [ "$(wc -l <<<"$verbs")" -ge 10 ]
    diff <(sort <<<"$verbs") <(sed -nE 's/^\.It Cm ([a-z]+)$/\1/p' src/man/arfuse-profile.1 | sort -u)
    known=$(grep -oE '(Fl|,) -[a-z-]+' src/man/arfuse-profile.1 | sed -E 's/.* (-[a-z-]+)/-\1/' | sort -u)
    for verb in $verbs; do
        for option in $("$build/arfuse-profile" "$verb" --help | of_help); do
            [ "$option" != --usage ] || continue # argp's own
            grep -qxF -- "$option" <<<"$known" || { echo "$verb $option"; false; }
        done
    done
}

@test "arfuse-profile(5) names every member that the schema has" {
    members=$(jq -r '[.. | objects | .properties? // empty | keys[]] | unique[]' profiles/schema/arfuse-profile-v1.schema.json)
    command -v mandoc >/dev/null || skip "no mandoc"
    page=$(mandoc -T ascii src/man/arfuse-profile.5 2>/dev/null | sed 's/.\x08//g')
    [ "$(wc -w <<<"$members")" -ge 40 ]
    # knobs are the tables' business: they are those of a tuning
    knobs=$(tr -d '\\\n' <src/rules/knobs.c | grep -oE '(NUMBER|DERIVED|SWITCH)\( *"[a-z_]+"' | grep -oE '"[a-z_]+"' | tr -d '"')
    for member in $members; do
        if grep -qx "$member" <<<"$knobs"; then continue; fi
        grep -qw -- "$member" <<<"$page" || { echo "$member"; false; }
    done
}

# what bash offers for words of a command line
offered() {
    bash -c '
        source "$1"; shift
        compopt() { :; }
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "_${1//-/_}"
        printf "%s\n" "${COMPREPLY[@]}"' _ "$BATS_TEST_TMPDIR/completion" "$@"
}

@test "completion offers every option of the tables" {
    scripts/completions "$build" >"$BATS_TEST_TMPDIR/completion"
    bash -n "$BATS_TEST_TMPDIR/completion"
    diff <("$build/arfuse-tune" --help | of_help) <(offered arfuse-tune -- | sed 's/=$//' | sort)
    [ "$(offered arfuse-tune --hid)" = --hidden= ]
    [ "$(offered arfuse-tune --dr)" = --dry-run ]
    [ -z "$(offered arfuse-tune x)" ] # a file, which bash offers by itself
    verbs=$("$build/arfuse-profile" --help | sed -n '/^Verbs/,/^$/p' | sed -nE 's/^  ([a-z]+) .*/\1/p')
    diff <(echo "$verbs") <(offered arfuse-profile '')
    [ "$(offered arfuse-profile ex)" = "$(printf 'explain\nexport')" ]
    for verb in $verbs; do
        diff <("$build/arfuse-profile" "$verb" --help | of_help) <(offered arfuse-profile "$verb" -- | sed 's/=$//' | sort)
    done
    [ -z "$(offered arfuse-profile check pro)" ]
}

@test "completion offers the values of options that take one of a few" {
    scripts/completions "$build" >"$BATS_TEST_TMPDIR/completion"
    expected() { # PROGRAM... OPTION: what it says it takes, as words
        ("$@" none 2>&1 || true) | sed -nE '/expected/{s/.*expected //; s/;.*//; s/a comma list of |( or)? both.*| or model:FILE//g; s/,| or / /g; p; q}' | xargs
    }
    tune=("$build/arfuse-tune" --hidden 8)
    for option in device format multicast numerics pattern policy protocols; do
        [ -n "$(expected "${tune[@]}" --$option)" ]
        diff <(expected "${tune[@]}" --$option) <(offered arfuse-tune --$option '' | xargs)
    done
    for option in 'explain pattern' 'plot pattern' 'fit numerics' 'fit duplicates' 'merge duplicates' 'export to' 'import from' 'retarget rule'; do
        [ -n "$(expected "$build/arfuse-profile" "${option% *}" "--${option#* }")" ]
        diff <(expected "$build/arfuse-profile" "${option% *}" "--${option#* }") <(offered arfuse-profile "${option% *}" "--${option#* }" '' | xargs)
    done
    [ "$(offered arfuse-profile import --link '' | xargs)" = 'nvlink pcie' ]
    [ "$(offered arfuse-tune --policy d)" = decode ]
    [ "$(offered arfuse-tune --policy = d)" = decode ]
    [ "$(offered arfuse-tune --policy = | xargs)" = 'warm decode' ]
    [ "$(offered arfuse-tune --protocols ll,b)" = ll,bt ]
    [ -z "$(offered arfuse-tune --policy warm,)" ]
    [ -z "$(offered arfuse-tune --output '')" ] # files
}

@test "make install puts pages and completion where they belong, uninstall removes them" {
    case ${BUILD:-build} in
    build) flags='' ;;
    build/nocuda) flags='CUDA=0' ;;
    *) skip "${BUILD:-build} is not what one installs" ;;
    esac
    root=$BATS_TEST_TMPDIR/root
    # shellcheck disable=SC2086
    make -s install DESTDIR="$root" PREFIX=/usr $flags
    cd "$root/usr/share"
    for page in man1/arfuse-tune.1 man1/arfuse-profile.1 man5/arfuse-profile.5; do
        [ -s "man/$page" ]
    done
    for program in arfuse-tune arfuse-profile; do
        grep -q "complete .* $program" "bash-completion/completions/$program"
    done
    cd "$BATS_TEST_DIRNAME/../.."
    # shellcheck disable=SC2086
    make -s uninstall DESTDIR="$root" PREFIX=/usr $flags
    [ -z "$(find "$root" -type f -o -type l)" ]
}
