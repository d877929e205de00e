#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The small form of scripts/check-aarch64, where its tools are installed.
set -u
if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    echo '1..1'
    echo 'ok 1 - aarch64 # skip no cross compiler or qemu: scripts/install-packages cross'
    exit 0
fi
[ "${ARFUSE_TEST_LONG:-0}" = 1 ] && exec scripts/check-aarch64 --long
exec scripts/check-aarch64
