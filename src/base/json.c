/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/locale.h"
#include "base/scan.h"

struct arf_json {
    cJSON *root;
};

/* ---- paths and messages -------------------------------------------------------------------- */

static const cJSON *node_of(const arf_json_value *value)
{
    return value->node;
}

static bool plain_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return length > 0 && name[length] == '\0' && length <= 40;
}

/* A quoted, escaped, shortened copy of a string from the file, fit for one line of a message. */
static void quote(const char *string, char quoted[64])
{
    arf_text text = {0};
    size_t bytes = 0, whole = strlen(string);
    while (bytes < whole && bytes < 40) /* the document is valid UTF-8: never cut a character */
        bytes += arf_utf8_length(string + bytes, whole - bytes);
    char copy[48];
    memcpy(copy, string, bytes);
    copy[bytes] = '\0';
    arf_text_string(&text, copy);
    snprintf(quoted, 64, "%.56s%s", text.failed ? "(a string)" : text.data,
             bytes < whole ? "..." : "");
    arf_text_free(&text);
}

static void extend_path(arf_json_value *value, const char *parent, const char *name, int index)
{
    char step[80];
    if (name == NULL)
        snprintf(step, sizeof step, "[%d]", index);
    else if (plain_name(name))
        snprintf(step, sizeof step, ".%s", name);
    else {
        char quoted[64];
        quote(name, quoted);
        snprintf(step, sizeof step, "[%s]", quoted);
    }
    size_t used = strlen(parent), more = strlen(step);
    if (used + more < sizeof value->path) {
        memmove(value->path, parent, used);
        memcpy(value->path + used, step, more + 1);
    } else { /* too long to spell out: the end is cut */
        memmove(value->path, parent, used + 1);
    }
}

/* What stands there, as a message shows it. */
static void show(const cJSON *node, char shown[80])
{
    if (node == NULL)
        snprintf(shown, 80, "nothing");
    else if (cJSON_IsObject(node))
        snprintf(shown, 80, "an object");
    else if (cJSON_IsArray(node))
        snprintf(shown, 80, "an array");
    else if (cJSON_IsString(node))
        quote(node->valuestring, shown);
    else if (cJSON_IsNumber(node)) {
        arf_text text = {0};
        arf_text_number(&text, node->valuedouble, -1);
        snprintf(shown, 80, "%.60s", text.failed ? "a number" : text.data);
        arf_text_free(&text);
    } else
        snprintf(shown, 80, "%s",
                 cJSON_IsNull(node)   ? "null"
                 : cJSON_IsTrue(node) ? "true"
                                      : "false");
}

static arfuse_status refuse(const arf_json_value *value, const char *expected, arf_error *error)
{
    char shown[80];
    show(node_of(value), shown);
    return arf_fail(error, ARFUSE_PROFILE, "%s: %s, expected %s", value->path, shown, expected);
}

/* ---- parsing ----------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

/* Sorted copies of the member pointers, so that a large object costs n log n. */
static arfuse_status check_names(const arf_json_value *object, int count, arf_error *error)
{
    const cJSON **member = malloc((size_t)count * sizeof *member);
    if (member == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for %d members", count);
    int i = 0;
    for (const cJSON *child = node_of(object)->child; child != NULL; child = child->next)
        member[i++] = child;
    qsort(member, (size_t)count, sizeof *member, by_name);
    arfuse_status status = ARFUSE_OK;
    for (i = 1; i < count && status == ARFUSE_OK; i++)
        if (strcmp(member[i - 1]->string, member[i]->string) == 0) {
            char quoted[64];
            quote(member[i]->string, quoted);
            status =
                arf_fail(error, ARFUSE_PROFILE, "%s: member %s stands there twice, expected once",
                         object->path, quoted);
        }
    free(member);
    return status;
}

/* Depth was bounded by the scan, so recursion is too. */
static arfuse_status check_unique(const arf_json_value *container, arf_error *error)
{
    bool object = cJSON_IsObject(node_of(container));
    int index = 0;
    for (const cJSON *child = node_of(container)->child; child != NULL; child = child->next) {
        if (cJSON_IsObject(child) || cJSON_IsArray(child)) {
            arf_json_value inner = {.node = child};
            extend_path(&inner, container->path, object ? child->string : NULL, index);
            ARF_TRY(check_unique(&inner, error));
        }
        index++;
    }
    return object && index > 1 ? check_names(container, index, error) : ARFUSE_OK;
}

arfuse_status arf_json_parse(const char *text, size_t bytes, arf_json **json, arf_error *error)
{
    if (bytes > ARF_JSON_MAX_BYTES)
        return arf_fail(error, ARFUSE_PROFILE, "%zu bytes, expected at most %zu", bytes,
                        ARF_JSON_MAX_BYTES);
    arf_locale locale;
    if (!arf_locale_enter(&locale))
        return arf_fail(error, ARFUSE_FAILURE, "out of memory for a locale");
    cJSON *root = NULL;
    arf_json *document = NULL;
    arfuse_status status = arf_scan_json(text, bytes, ARF_JSON_MAX_DEPTH, error);
    /* The text is well-formed by now, so that cJSON can only lack memory. */
    if (status == ARFUSE_OK && (root = cJSON_ParseWithLengthOpts(text, bytes, NULL, 0)) == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for a document");
    if (status == ARFUSE_OK && (cJSON_IsObject(root) || cJSON_IsArray(root)))
        status = check_unique(&(arf_json_value){.node = root, .path = "$"}, error);
    if (status == ARFUSE_OK && (document = malloc(sizeof *document)) == NULL)
        status = arf_fail(error, ARFUSE_FAILURE, "out of memory for a document");
    arf_locale_leave(&locale);
    if (status != ARFUSE_OK) {
        cJSON_Delete(root);
        return status;
    }
    document->root = root;
    *json = document;
    return ARFUSE_OK;
}

void arf_json_free(arf_json *json)
{
    if (json == NULL)
        return;
    cJSON_Delete(json->root);
    free(json);
}

arf_json_value arf_json_root(const arf_json *json)
{
    return (arf_json_value){.node = json->root, .path = "$"};
}

/* ---- containers ---------------------------------------------------------------------------- */

arfuse_status arf_json_object(const arf_json_value *object, const char *const *members,
                              arf_error *error)
{
    if (!cJSON_IsObject(node_of(object)))
        return refuse(object, "an object", error);
    if (members == NULL)
        return ARFUSE_OK;
    for (const cJSON *child = node_of(object)->child; child != NULL; child = child->next) {
        const char *const *known = members;
        while (*known != NULL && strcmp(*known, child->string) != 0)
            known++;
        if (*known != NULL)
            continue;
        char list[512] = "", quoted[64];
        size_t used = 0;
        for (known = members; *known != NULL; known++) {
            int more =
                snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", *known);
            if (more < 0 || (size_t)more >= sizeof list - used)
                break;
            used += (size_t)more;
        }
        quote(child->string, quoted);
        return arf_fail(error, ARFUSE_PROFILE, "%s: unknown member %s, expected %s%s", object->path,
                        quoted, used > 0 ? "only " : "no member", list);
    }
    return ARFUSE_OK;
}

arfuse_status arf_json_optional(const arf_json_value *object, const char *name,
                                arf_json_value *value, arf_error *error)
{
    if (!cJSON_IsObject(node_of(object)))
        return refuse(object, "an object", error);
    const cJSON *child = cJSON_GetObjectItemCaseSensitive(node_of(object), name);
    arf_json_value found = {.node = child};
    extend_path(&found, object->path, name, 0);
    *value = found;
    return ARFUSE_OK;
}

arfuse_status arf_json_member(const arf_json_value *object, const char *name, arf_json_value *value,
                              arf_error *error)
{
    if (!cJSON_IsObject(node_of(object)))
        return refuse(object, "an object", error);
    const cJSON *child = cJSON_GetObjectItemCaseSensitive(node_of(object), name);
    if (child == NULL)
        return arf_fail(error, ARFUSE_PROFILE, "%s: no member \"%s\", expected one", object->path,
                        name);
    arf_json_value found = {.node = child};
    extend_path(&found, object->path, name, 0);
    *value = found;
    return ARFUSE_OK;
}

arfuse_status arf_json_array(const arf_json_value *array, int *count, arf_error *error)
{
    if (!cJSON_IsArray(node_of(array)))
        return refuse(array, "an array", error);
    *count = cJSON_GetArraySize(node_of(array));
    return ARFUSE_OK;
}

bool arf_json_next(const arf_json_value *container, arf_json_value *child, const char **name)
{
    const cJSON *parent = node_of(container), *before = child->node;
    const cJSON *node = before == NULL ? parent->child : before->next;
    int index = before == NULL ? 0 : child->index + 1;
    if (node == NULL)
        return false;
    const char *own = cJSON_IsObject(parent) ? node->string : NULL;
    *child = (arf_json_value){.node = node, .index = index};
    extend_path(child, container->path, own, index);
    if (name != NULL)
        *name = own;
    return true;
}

bool arf_json_member_at(const arf_json_value *object, int index, const char **name,
                        arf_json_value *value)
{
    const cJSON *child = cJSON_GetArrayItem(node_of(object), index);
    if (child == NULL || !cJSON_IsObject(node_of(object)))
        return false;
    arf_json_value found = {.node = child, .index = index};
    extend_path(&found, object->path, child->string, 0);
    *name = child->string;
    *value = found;
    return true;
}

arf_json_value arf_json_element(const arf_json_value *array, int index)
{
    arf_json_value found = {.node = cJSON_GetArrayItem(node_of(array), index), .index = index};
    extend_path(&found, array->path, NULL, index);
    return found;
}

/* ---- values --------------------------------------------------------------------------------- */

bool arf_json_is_null(const arf_json_value *value)
{
    return cJSON_IsNull(node_of(value));
}

bool arf_json_is_object(const arf_json_value *value)
{
    return cJSON_IsObject(node_of(value));
}

arfuse_status arf_json_integer(const arf_json_value *value, int64_t low, int64_t high,
                               int64_t *number, arf_error *error)
{
    /* valuedouble, never valueint: cJSON clamps the latter to the range of int. */
    const cJSON *node = node_of(value);
    double exact = cJSON_IsNumber(node) ? node->valuedouble : 0.5;
    if (exact != floor(exact) || fabs(exact) > (double)ARF_JSON_MAX_INTEGER ||
        (int64_t)exact < low || (int64_t)exact > high) {
        char expected[96];
        snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)low,
                 (long long)high);
        return refuse(value, expected, error);
    }
    *number = (int64_t)exact;
    return ARFUSE_OK;
}

arfuse_status arf_json_number(const arf_json_value *value, double low, double high, double *number,
                              arf_error *error)
{
    const cJSON *node = node_of(value);
    if (!cJSON_IsNumber(node) || !(node->valuedouble >= low && node->valuedouble <= high)) {
        arf_text expected = {0};
        arf_text_add(&expected, "a number from %g to %g", low, high);
        arfuse_status status = refuse(value, expected.failed ? "a number" : expected.data, error);
        arf_text_free(&expected);
        return status;
    }
    *number = node->valuedouble;
    return ARFUSE_OK;
}

arfuse_status arf_json_boolean(const arf_json_value *value, bool *truth, arf_error *error)
{
    if (!cJSON_IsBool(node_of(value)))
        return refuse(value, "true or false", error);
    *truth = cJSON_IsTrue(node_of(value));
    return ARFUSE_OK;
}

arfuse_status arf_json_string(const arf_json_value *value, char *text, size_t size,
                              arf_error *error)
{
    const cJSON *node = node_of(value);
    if (!cJSON_IsString(node))
        return refuse(value, "a string", error);
    size_t bytes = strlen(node->valuestring);
    if (bytes >= size) {
        char expected[64];
        snprintf(expected, sizeof expected, "a string of at most %zu bytes", size - 1);
        return refuse(value, expected, error);
    }
    memcpy(text, node->valuestring, bytes + 1);
    return ARFUSE_OK;
}

/* Not cJSON's own printer: it compares what it printed with a tolerance, so the last digit of a
 * number can be lost. */
static void print_value(const cJSON *node, arf_text *text)
{
    if (cJSON_IsNumber(node))
        arf_text_number(text, node->valuedouble, -1);
    else if (cJSON_IsString(node))
        arf_text_string(text, node->valuestring);
    else if (cJSON_IsObject(node) || cJSON_IsArray(node)) {
        bool object = cJSON_IsObject(node);
        arf_text_add(text, object ? "{" : "[");
        for (const cJSON *child = node->child; child != NULL; child = child->next) {
            if (child != node->child)
                arf_text_add(text, ",");
            if (object) {
                arf_text_string(text, child->string);
                arf_text_add(text, ":");
            }
            print_value(child, text);
        }
        arf_text_add(text, object ? "}" : "]");
    } else
        arf_text_add(text, "%s",
                     cJSON_IsNull(node)   ? "null"
                     : cJSON_IsTrue(node) ? "true"
                                          : "false");
}

char *arf_json_print(const arf_json_value *value)
{
    arf_text text = {0};
    print_value(node_of(value), &text);
    if (text.failed)
        arf_text_free(&text);
    return text.data;
}
