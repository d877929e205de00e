#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One failing call in whole runs: a seeded slice, or in the long run up to a dozen of each call.
exec python3 tests/faults/sweep.py
