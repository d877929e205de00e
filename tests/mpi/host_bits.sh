#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The host device under MPI, one process a rank: bits equal to the reference on every rank.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0 # MPI leaks when it ends; the unit tests look for leaks of ours
sizes=(2 4 8)
[ "${ARFUSE_TEST_LONG:-0}" = 1 ] && sizes=(1 2 3 4 6 8)
status=0
for ranks in "${sizes[@]}"; do
    mpirun --oversubscribe -n "$ranks" "$BUILD/tests/host_mpi_test" || status=1
done
exit $status
