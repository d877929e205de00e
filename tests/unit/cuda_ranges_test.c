/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of a profiler: one that is linked in hears them; without one nobody is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if defined(ARF_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NVTX_NO_IMPL /* its functions are ranges.c's business */
#include <nvtx3/nvToolsExt.h>

#include "device/cuda/ranges.h"

/* ---- a profiler ------------------------------------------------------------------------------ */

static struct {
    char domain[32], text[64];
    int begun, ended;
} heard;

static nvtxDomainHandle_t hear_domain(const char *name)
{
    snprintf(heard.domain, sizeof heard.domain, "%s", name);
    return (nvtxDomainHandle_t)(void *)&heard;
}

static int hear_begin(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
    if (domain == (nvtxDomainHandle_t)(void *)&heard && event->version == NVTX_VERSION &&
        event->messageType == NVTX_MESSAGE_TYPE_ASCII)
        snprintf(heard.text, sizeof heard.text, "%s", event->message.ascii);
    return heard.begun++;
}

static int hear_end(nvtxDomainHandle_t domain)
{
    (void)domain;
    return heard.ended++;
}

static int attach(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (callbacks == NULL ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)hear_domain;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)hear_begin;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)hear_end;
    return 1;
}

/* NVTX looks for this symbol last. */
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;

/* ---- tests ----------------------------------------------------------------------------------- */

/* NVTX decides once a process, so each case has one of its own. */
static void in_a_process(int (*what)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(what());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int listen(void)
{
    unsetenv("NVTX_INJECTION64_PATH");
    void *domain = arf_ranges_open();
    if (domain == NULL || strcmp(heard.domain, "arfuse") != 0)
        return 1;
    arf_ranges_begin(domain, "allreduce attn_out M=17 ll, route 1 of 4");
    if (heard.begun != 1 || heard.ended != 0 ||
        strcmp(heard.text, "allreduce attn_out M=17 ll, route 1 of 4") != 0)
        return 2;
    arf_ranges_end(domain);
    return heard.ended == 1 ? 0 : 3;
}

static int listen_to_nobody(void)
{
    unsetenv("NVTX_INJECTION64_PATH");
    InitializeInjectionNvtx2_fnptr = NULL;
    void *domain = arf_ranges_open();
    arf_ranges_close(domain);
    return domain == NULL && heard.begun == 0 ? 0 : 1;
}

static void who_listens_hears_the_ranges(void **state)
{
    (void)state;
    in_a_process(listen);
}

static void without_a_profiler_there_is_no_domain(void **state)
{
    (void)state;
    in_a_process(listen_to_nobody);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_listens_hears_the_ranges),
        cmocka_unit_test(without_a_profiler_there_is_no_domain),
    };
    return cmocka_run_group_tests_name("cuda_ranges", tests, NULL, NULL);
}

#else
#include "support/no_cuda.h"
#endif
