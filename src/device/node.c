/* SPDX-License-Identifier: Apache-2.0 */
#include "device/node.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void arf_node_here(arf_node *node)
{
    *node = (arf_node){.network = 0};
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? 0 : read(file, node->name, sizeof node->name - 1);
    if (file >= 0)
        close(file);
    if (bytes > 0)
        node->name[strcspn(node->name, "\n")] = '\0';
    else
        gethostname(node->name, sizeof node->name - 1);
    const char *other = getenv("ARFUSE_TEST_NODE");
    if (other != NULL && other[0] != '\0') {
        size_t used = strlen(node->name);
        snprintf(node->name + used, sizeof node->name - used, "/%s", other);
    }
    struct stat status;
    if (stat("/proc/thread-self/ns/net", &status) == 0)
        node->network = status.st_ino;
}

bool arf_node_same(const arf_node *a, const arf_node *b)
{
    return strcmp(a->name, b->name) == 0;
}
