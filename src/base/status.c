/* SPDX-License-Identifier: Apache-2.0 */
#include "arfuse.h"

const char *arfuse_status_text(arfuse_status status)
{
    switch (status) {
    case ARFUSE_OK:
        return "ok";
    case ARFUSE_FAILURE:
        return "failure";
    case ARFUSE_USAGE:
        return "an argument is wrong";
    case ARFUSE_PROFILE:
        return "a profile is invalid or not usable here";
    case ARFUSE_HARDWARE:
        return "no suitable device, driver, link or memory";
    case ARFUSE_WRONG_RESULT:
        return "a check of results failed";
    case ARFUSE_TIMEOUT:
        return "a wait on a peer expired";
    case ARFUSE_DISAGREE:
        return "the ranks disagree";
    case ARFUSE_FAILED:
        return "the workspace failed earlier";
    case ARFUSE_NOT_SERVED:
        return "no fused route serves this call";
    case ARFUSE_IN_USE:
        return "still in use";
    case ARFUSE_NOT_SUPPORTED:
        return "not supported by this build or device";
    case ARFUSE_OWED:
        return "a deferred reduction was dropped";
    }
    return "unknown status";
}

const char *arfuse_version(void)
{
    return ARF_VERSION;
}
