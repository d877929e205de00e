/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of a test program of the CUDA device where that is not built: a skip, in place of main. */
#ifndef TESTS_SUPPORT_NO_CUDA_H
#define TESTS_SUPPORT_NO_CUDA_H

#include <stdio.h>

int main(void)
{
    printf("1..1\nok 1 # SKIP built without the CUDA device\n");
    return 0;
}

#endif
