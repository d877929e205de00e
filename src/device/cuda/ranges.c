/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/ranges.h"

#include <stddef.h>

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <nvtx3/nvToolsExt.h>

void *arf_ranges_open(void)
{
    nvtxInitialize(NULL);
    return nvtxDomainCreateA("arfuse"); /* NULL when nobody listens */
}

void arf_ranges_close(void *domain)
{
    if (domain != NULL)
        nvtxDomainDestroy(domain);
}

void arf_ranges_begin(void *domain, const char *text)
{
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message = {.ascii = text}};
    nvtxDomainRangePushEx(domain, &event);
}

void arf_ranges_end(void *domain)
{
    nvtxDomainRangePop(domain);
}

#else

void *arf_ranges_open(void)
{
    return NULL;
}

void arf_ranges_close(void *domain)
{
    (void)domain;
}

void arf_ranges_begin(void *domain, const char *text)
{
    (void)domain, (void)text;
}

void arf_ranges_end(void *domain)
{
    (void)domain;
}

#endif
