/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_EMULATOR_HT_CASES_H
#define TESTS_EMULATOR_HT_CASES_H

#include "emulator/team.h"

extern const team_case ht_cases[];
extern const int ht_case_count;

#endif
