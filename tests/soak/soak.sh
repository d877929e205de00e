#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random calls on the host device for some seconds. An hour: ARFUSE_SOAK_SECONDS=3600 build/tests/soak_test
exec "$BUILD/tests/soak_test"
