#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One failing call in whole runs: a seeded slice, or in the long run each kind of call at several places.
exec python3 tests/faults/sweep.py
