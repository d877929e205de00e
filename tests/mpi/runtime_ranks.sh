#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libarfuse with three processes under MPI: ranks that were told different things, and an end of MPI
# that comes before the end of the workspaces.
set -u
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0 # MPI leaks when it ends, and one workspace is left on purpose
unset ARFUSE_PROFILE ARFUSE_PROFILE_PATH ARFUSE_ROUTES ARFUSE_CHECKED ARFUSE_SHADOW_EVERY
exec timeout 60 mpirun --oversubscribe -n 3 "$BUILD/tests/runtime_ranks_test"
