/* SPDX-License-Identifier: Apache-2.0 */
/* Which routes a workspace runs by, and where they came from (design section 6). */
#ifndef ARF_RUNTIME_CHOOSE_H
#define ARF_RUNTIME_CHOOSE_H

#include "profile/lookup.h"

#define ARF_PATH_TEXT 4096

typedef struct arf_choice {
    arf_profile *profile; /* owned; made-up ones too; NULL: everything runs unfused */
    /* By pattern: how the routes came about, and the file or its like in words. */
    arf_method method[ARF_PATTERNS];
    char source[ARF_PATTERNS][ARF_PATH_TEXT];
} arf_choice;

typedef struct arf_choice_request {
    arf_profile_key key;
    arf_problem problem;
    int64_t capacity;
    const char *profile, *profile_path; /* the options; NULL: environment */
    arfuse_routes routes[ARF_PATTERNS]; /* none is AUTO */
    bool strict;
    const arf_log *log; /* of one process of the team only, so that one warning is one line */
} arf_choice_request;

/* Local; the caller votes and compares digests. arf_choice_clear frees it, also after a failure. */
arfuse_status arf_choose(const arf_choice_request *request, arf_choice *choice, arf_error *error);
void arf_choice_clear(arf_choice *choice);

#endif
