/* SPDX-License-Identifier: Apache-2.0 */
#include "support/german.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/scratch.h"

bool german_on(void)
{
    char folder[SCRATCH_PATH], command[SCRATCH_PATH + 128];
    scratch_make(folder);
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
    int made = system(command);
    setenv("LOCPATH", folder, 1);
    bool on = made == 0 && setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    scratch_remove(folder); /* it is in memory */
    if (!on)
        german_off();
    return on;
}

void german_off(void)
{
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
}
