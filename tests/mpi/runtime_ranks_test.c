/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarfuse in processes of their own, started by MPI: what one rank's environment or file says
 * otherwise, and the end of MPI before the end of a workspace. A line of TAP from rank 0 for each
 * case, which passes when it passed on every rank.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "support/runtime_case.h"

static int rank, size, cases, failures;
static char profile_path[256];

static int allgather(void *context, const void *send, void *receive, size_t bytes)
{
    (void)context;
    return MPI_Allgather(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static int barrier(void *context)
{
    (void)context;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static arfuse_status create(const char *profile, arfuse_workspace **workspace, arf_error *error)
{
    const arf_shape shape = {size, 64, 2, ARF_ON, ARF_ON, ARF_ON};
    arfuse_bootstrap bootstrap = {sizeof bootstrap, NULL, rank, size, allgather, barrier};
    arfuse_options options = case_options(&shape, 16);
    options.local_ranks = 1;
    options.profile = profile;
    *error = (arf_error)ARF_ERROR_INIT;
    return arfuse_workspace_create(&bootstrap, &options, workspace, error);
}

static void tell(const char *name, int right, const char *text)
{
    int all = right;
    if (size > 1)
        MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    cases++;
    failures += !all;
    if (!right)
        printf("# rank %d: %s\n", rank, text);
    if (rank == 0)
        printf("%sok %d - %s\n", all ? "" : "not ", cases, name);
    fflush(stdout);
}

/* One rank has a variable that the others have not. */
static void expect_disagreement(const char *variable, const char *value, const char *part)
{
    arfuse_workspace *workspace = NULL;
    arf_error error;
    char name[128];
    if (rank == 1)
        setenv(variable, value, 1);
    arfuse_status status = create(profile_path, &workspace, &error);
    unsetenv(variable);
    snprintf(name, sizeof name, "%s=%s on rank 1 alone is refused by all", variable, value);
    tell(name,
         status == ARFUSE_DISAGREE && workspace == NULL && strstr(error.text, part) != NULL &&
             strstr(error.text, "rank 1") != NULL,
         error.text);
}

/* A file of this rank's own: what the measurement says about itself differs, the routes do not. */
static void expect_evidence_to_be_free(void)
{
    arfuse_workspace *workspace = NULL;
    arf_error error;
    char path[256];
    const arf_shape shape = {size, 64, 2, ARF_ON, ARF_ON, ARF_ON};
    arf_profile *profile = case_profile(&shape);
    snprintf(profile->evidence.tool, sizeof profile->evidence.tool, "measured on day %d", rank);
    case_save(profile, path);
    arf_profile_free(profile);
    arfuse_status status = create(path, &workspace, &error);
    case_remove(path);
    tell("other evidence for the same routes is no difference", status == ARFUSE_OK, error.text);
    arfuse_workspace_destroy(&workspace, NULL);
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const arf_shape shape = {size, 64, 2, ARF_ON, ARF_ON, ARF_ON};
    arf_profile *profile = case_profile(&shape);
    case_save(profile, profile_path);
    arf_profile_free(profile);

    expect_disagreement("ARFUSE_ROUTES", "unfused", "routes");
    expect_disagreement("ARFUSE_ROUTES", "finalize=default", "routes");
    expect_disagreement("ARFUSE_SHADOW_EVERY", "3", "shadow");
    expect_disagreement("ARFUSE_CHECKED", "1", "checked");
    expect_evidence_to_be_free();

    arfuse_workspace *first = NULL, *second = NULL;
    arf_error error;
    tell("a workspace after those", create(profile_path, &first, &error) == ARFUSE_OK, error.text);
    tell("and one beside it", create(profile_path, &second, &error) == ARFUSE_OK, error.text);
    case_remove(profile_path);
    MPI_Finalize();
    const int ranks = size;
    size = 1; /* what follows is each process's own business */
    arfuse_status status = arfuse_workspace_destroy(&first, &error);
    tell("destroyed after the end of MPI", status == ARFUSE_OK && first == NULL, error.text);
    status = arfuse_workspace_destroy(&first, &error);
    tell("and once more", status == ARFUSE_OK, error.text);
    if (rank == 0)
        printf("# the other one is never destroyed, on any of %d ranks\n1..%d\n", ranks, cases);
    return failures != 0;
}
