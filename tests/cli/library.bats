#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The library as others get it: the header alone, what is exported, what it needs, installing it
# somewhere, and building against that outside the tree.

setup() {
    cd "$BATS_TEST_DIRNAME/../.." || exit 1
    build=${BUILD:-build}
    work=$BATS_TEST_TMPDIR
}

# The functions that the header declares.
declared() {
    tr '\n' ' ' <src/arfuse.h | grep -oE 'ARFUSE_API [^;{]*\(' | grep -oE 'arfuse_[a-z_]+ ?\($' |
        tr -d ' (' | sort
}

# Tries each compiler that is there; at least one must be.
compilers() { # NAME...
    local found=0
    for compiler in "$@"; do
        command -v "$compiler" >/dev/null && found=1 && echo "$compiler"
    done
    [ "$found" = 1 ]
}

@test "the header compiles alone, as C99 and as C++, without a word" {
    printf '#include "arfuse.h"\n#include "arfuse.h"\nint use(void) { return ARFUSE_OK; }\n' >"$work/one.c"
    cp "$work/one.c" "$work/one.cpp"
    for compiler in $(compilers gcc clang); do
        for standard in c99 c11 c17; do
            run "$compiler" -std=$standard -pedantic -Wall -Wextra -Werror -Isrc -c "$work/one.c" -o "$work/one.o"
            echo "$compiler $standard: $output"
            [ "$status" = 0 ]
            [ -z "$output" ]
        done
    done
    for compiler in $(compilers g++ clang++); do
        for standard in c++11 c++17 c++20; do
            run "$compiler" -std=$standard -pedantic -Wall -Wextra -Werror -Isrc -c "$work/one.cpp" -o "$work/one.o"
            echo "$compiler $standard: $output"
            [ "$status" = 0 ]
            [ -z "$output" ]
        done
    done
}

@test "every initialiser compiles as C99 and as C++" {
    {
        echo '#include "arfuse.h"'
        for name in $(grep -oE 'define ARFUSE_[A-Z]+_INIT' src/arfuse.h | grep -oE '[A-Z]+_INIT' | sed 's/_INIT//'); do
            type=arfuse_$(echo "$name" | tr '[:upper:]' '[:lower:]')
            echo "$type make_$type(void); $type make_$type(void) { $type x = ARFUSE_${name}_INIT; return x; }"
        done
    } >"$work/init.c"
    [ "$(grep -c make_ "$work/init.c")" -ge 8 ]
    cp "$work/init.c" "$work/init.cpp"
    for compiler in $(compilers gcc clang); do
        "$compiler" -std=c99 -pedantic -Wall -Wextra -Werror -Isrc -c "$work/init.c" -o "$work/init.o"
    done
    for compiler in $(compilers g++ clang++); do
        "$compiler" -std=c++11 -pedantic -Wall -Wextra -Werror -Isrc -c "$work/init.cpp" -o "$work/init.o"
    done
}

@test "the shared library exports what the header declares, and nothing else" {
    case $build in *asan* | *tsan* | *coverage*) skip "the sanitizers' own symbols" ;; esac
    nm -D --defined-only "$build/libarfuse.so" | awk '{ print $3 }' | sort >"$work/exported"
    declared >"$work/declared"
    [ "$(wc -l <"$work/declared")" -ge 19 ]
    diff "$work/declared" "$work/exported"
}

@test "the archive defines the same global names" {
    case $build in *asan* | *tsan* | *coverage*) skip "the sanitizers' own symbols" ;; esac
    nm -g --defined-only "$build/libarfuse.a" | awk 'NF == 3 { print $3 }' | sort >"$work/global"
    declared | diff - "$work/global"
}

@test "the shared library has its name and needs neither MPI nor CUDA" {
    run readelf -d "$build/libarfuse.so"
    [[ $output == *'soname: [libarfuse.so.0]'* ]]
    needed=$(echo "$output" | grep NEEDED)
    echo "$needed"
    for library in mpi cuda nvrtc nccl pmix; do
        [[ $needed != *"$library"* ]]
    done
}

# Installs into $work/root, as a package would.
install_here() {
    case $build in
    build) flags='' ;;
    build/nocuda) flags='CUDA=0' ;;
    *) skip "$build is not what one installs" ;;
    esac
    # shellcheck disable=SC2086
    run make -s install DESTDIR="$work/root" $flags
    echo "$output"
    [ "$status" = 0 ]
}

@test "installing puts everything in its place, uninstalling leaves nothing" {
    install_here
    root=$work/root/usr/local
    for file in bin/arfuse-tune bin/arfuse-profile include/arfuse.h lib/libarfuse.a lib/libarfuse.so \
        lib/libarfuse.so.0 lib/pkgconfig/arfuse.pc share/man/man3/arfuse.3; do
        [ -e "$root/$file" ] || { echo "no $file" && false; }
    done
    version=$("$root/bin/arfuse-profile" --version | awk '{ print $2 }')
    [ "$(PKG_CONFIG_PATH=$root/lib/pkgconfig pkg-config --modversion arfuse)" = "$version" ]
    # shellcheck disable=SC2086
    run make -s uninstall DESTDIR="$work/root" $flags
    [ "$status" = 0 ]
    left=$(find "$work/root" -type f -o -type l)
    echo "$left"
    [ -z "$left" ]
}

@test "a program outside the tree builds and runs against what was installed" {
    install_here
    root=$work/root
    export PKG_CONFIG_PATH=$root/usr/local/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
    mkdir "$work/outside"
    cat >"$work/outside/consumer.c" <<'END'
#include <arfuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned short tensor[5][2 * 64];

int main(void)
{
    arfuse_options options = ARFUSE_OPTIONS_INIT;
    arfuse_call call = ARFUSE_CALL_INIT;
    arfuse_operands operands = ARFUSE_OPERANDS_INIT;
    arfuse_error error = ARFUSE_ERROR_INIT;
    arfuse_workspace *workspace = NULL;
    int i;
    for (i = 0; i < 2 * 64; i++) {
        tensor[0][i] = 0x4000; /* 2 */
        tensor[1][i] = 0x3f80; /* 1 */
        tensor[2][i] = 0x3f80;
    }
    options.hidden_size = 64;
    options.capacity = 8;
    options.device = "host";
    options.routes[ARFUSE_ALLREDUCE] = ARFUSE_ROUTES_DEFAULT;
    if (arfuse_workspace_create(NULL, &options, &workspace, &error) != ARFUSE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    call.tokens = 2;
    operands.input = tensor[0];
    operands.residual = tensor[1];
    operands.gamma = tensor[2];
    operands.residual_out = tensor[3];
    operands.norm_out = tensor[4];
    if (arfuse_allreduce(workspace, &call, &operands, &error) != ARFUSE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    arfuse_workspace_destroy(&workspace, &error);
    printf("%s %04x %04x\n", arfuse_version(), tensor[3][127], tensor[4][127]);
    return 0;
}
END
    sed -i 's/^static unsigned short tensor/static unsigned short __attribute__((aligned(64))) tensor/' "$work/outside/consumer.c"
    cp "$work/outside/consumer.c" "$work/outside/consumer.cpp"
    cd "$work/outside"
    # who links the shared library needs no package of what is inside it
    PKG_CONFIG_LIBDIR=$PKG_CONFIG_PATH pkg-config --cflags --libs arfuse
    static=$(pkg-config --static --cflags --libs arfuse | sed 's/-larfuse/-l:libarfuse.a/')
    expected="$(pkg-config --modversion arfuse) 4040 3f80"
    tried=0
    for compiler in gcc clang g++ clang++; do
        command -v "$compiler" >/dev/null || continue
        case $compiler in *++) source=consumer.cpp ;; *) source=consumer.c ;; esac
        # shellcheck disable=SC2046
        "$compiler" -Wall -Wextra -Werror $source -o shared $(pkg-config --cflags --libs arfuse)
        # shellcheck disable=SC2086
        "$compiler" -Wall -Wextra -Werror $source -o static $static
        [ "$(LD_LIBRARY_PATH=$root/usr/local/lib ./shared)" = "$expected" ]
        [ "$(./static)" = "$expected" ]
        run ldd ./static
        [[ $output != *libarfuse* ]]
        tried=$((tried + 1))
    done
    echo "tried $tried compilers"
    [ "$tried" -ge 2 ]
}

@test "the manual page is clean and documents every function" {
    command -v mandoc >/dev/null || skip "no mandoc"
    run mandoc -T lint -W warning src/man/arfuse.3
    echo "$output"
    [ "$status" = 0 ]
    for name in $(declared); do
        grep -q "^\.Fn $name " src/man/arfuse.3 || { echo "$name is not there" && false; }
    done
    for name in $(grep -ohE '"ARFUSE_[A-Z_]+"' src/runtime/environment.c | tr -d '"' | sort -u); do
        case $name in ARFUSE_TEST_ | ARFUSE_ | ARFUSE_SOCKET_FOLDER) continue ;; esac
        grep -q "Ev $name" src/man/arfuse.3 || { echo "$name is not there" && false; }
        grep -q "$name" src/arfuse.h || { echo "$name is not in the header" && false; }
    done
}
