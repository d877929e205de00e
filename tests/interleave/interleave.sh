#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
exec "$BUILD/tests/interleave_test"
