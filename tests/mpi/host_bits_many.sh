#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# host_bits.sh with 16 processes, which takes minutes on two cores: in the long run only.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0 # MPI leaks when it ends; the unit tests look for leaks of ours
if [ "${ARFUSE_TEST_LONG:-0}" != 1 ]; then
    echo "1..1"
    echo "ok 1 - 16 processes # skip ARFUSE_TEST_LONG=1 runs it"
    exit 0
fi
exec mpirun --oversubscribe -n 16 "$BUILD/tests/host_mpi_test"
