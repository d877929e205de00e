/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MAX_SOURCES 64
#define MAX_OPTIONS 48

/*
 * Contraction off, subnormals kept, division and square root rounded: the bits are part of the
 * contract, and a fused multiply-add stands only where a source says so.
 */
const char *const arf_compile_options[] = {"-std=c++17",
                                           "--fmad=false",
                                           "--ftz=false",
                                           "--prec-div=true",
                                           "--prec-sqrt=true",
                                           "-lineinfo",
                                           "--device-as-default-execution-space",
                                           NULL};
#define FIXED_OPTIONS ((int)(sizeof arf_compile_options / sizeof arf_compile_options[0]) - 1)

/* All options of one compilation, in order. */
typedef struct option_list {
    const char *text[MAX_OPTIONS];
    int count;
    char architecture[32];
} option_list;

uint64_t arf_source_digest(const arf_source *sources)
{
    uint64_t hash = ARF_HASH_INIT;
    for (const arf_source *source = sources; source->name != NULL; source++) {
        hash = arf_hash_text(hash, source->name);
        hash = arf_hash_number(hash, (int64_t)source->bytes);
        hash = arf_hash(hash, source->text, source->bytes);
    }
    return hash;
}

arfuse_status arf_compiler_open(arf_compiler *compiler, int capability, int driver_major,
                                const arf_source *sources, const arf_log *log, arf_error *error)
{
    memset(compiler, 0, sizeof *compiler);
    ARF_TRY(arf_nvrtc_open(&compiler->nvrtc, error));
    arfuse_status status = arf_nvrtc_target(&compiler->nvrtc, capability, &compiler->target, error);
    if (status != ARFUSE_OK) {
        arf_nvrtc_close(&compiler->nvrtc);
        return status;
    }
    compiler->driver_major = driver_major;
    compiler->sources = sources;
    compiler->source_digest = arf_source_digest(sources);
    if (log != NULL)
        compiler->log = *log;
    if (!compiler->target.binary)
        arf_logf(&compiler->log, ARFUSE_LOG_INFO,
                 "libnvrtc %d.%d does not know compute capability %d.%d: the driver compiles PTX "
                 "for %d.%d at each load",
                 compiler->nvrtc.major, compiler->nvrtc.minor, capability / 10, capability % 10,
                 compiler->target.architecture / 10, compiler->target.architecture % 10);
    arf_cache_open(&compiler->cache, &compiler->log);
    return ARFUSE_OK;
}

void arf_compiler_close(arf_compiler *compiler)
{
    arf_nvrtc_close(&compiler->nvrtc);
}

void arf_image_free(arf_image *image)
{
    free(image->data);
    *image = (arf_image){0};
}

static arfuse_status collect_options(const arf_compiler *compiler, const char *const *defines,
                                     int count, option_list *options, arf_error *error)
{
    if (count < 0 || count + FIXED_OPTIONS + 1 > MAX_OPTIONS)
        return arf_fail(error, ARFUSE_FAILURE, "%d compile options: at most %d", count,
                        MAX_OPTIONS - FIXED_OPTIONS - 1);
    snprintf(options->architecture, sizeof options->architecture, "--gpu-architecture=%s_%d",
             compiler->target.binary ? "sm" : "compute", compiler->target.architecture);
    options->text[options->count++] = options->architecture;
    for (const char *const *option = arf_compile_options; *option != NULL; option++)
        options->text[options->count++] = *option;
    for (int i = 0; i < count; i++)
        options->text[options->count++] = defines[i];
    return ARFUSE_OK;
}

static arf_cache_key make_key(const arf_compiler *compiler, const char *name,
                              const option_list *options)
{
    arf_cache_key key;
    for (int i = 0; i < 2; i++) {
        uint64_t hash = arf_hash_number(ARF_HASH_INIT, i);
        hash = arf_hash_number(hash, compiler->nvrtc.major);
        hash = arf_hash_number(hash, compiler->nvrtc.minor);
        hash = arf_hash_number(hash, compiler->driver_major);
        hash = arf_hash_number(hash, (int64_t)compiler->source_digest);
        hash = arf_hash_text(hash, name);
        for (int j = 0; j < options->count; j++)
            hash = arf_hash_text(hash, options->text[j]);
        key.digest[i] = hash;
    }
    return key;
}

static arfuse_status check(const arf_compiler *compiler, nvrtcResult result, const char *call,
                           const char *name, arf_error *error)
{
    if (result == NVRTC_SUCCESS)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_FAILURE, "%s: %s: %s", name, call,
                    compiler->nvrtc.nvrtcGetErrorString(result));
}

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), tail = strlen(end);
    return bytes >= tail && strcmp(text + bytes - tail, end) == 0;
}

/* Every header stands ready as an include file, so that the toolkit's headers are never sought. */
static arfuse_status create_program(const arf_compiler *compiler, const char *name,
                                    nvrtcProgram *program, arf_error *error)
{
    const char *names[MAX_SOURCES], *texts[MAX_SOURCES], *text = NULL;
    int count = 0;
    for (const arf_source *source = compiler->sources; source->name != NULL; source++) {
        if (count == MAX_SOURCES)
            return arf_fail(error, ARFUSE_FAILURE, "more than %d kernel sources", MAX_SOURCES);
        if (strcmp(source->name, name) == 0)
            text = source->text;
        if (ends_with(source->name, ".cu"))
            continue;
        names[count] = source->name;
        texts[count++] = source->text;
    }
    if (text == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "this build has no kernel source %s", name);
    nvrtcResult result =
        compiler->nvrtc.nvrtcCreateProgram(program, text, name, count, texts, names);
    return check(compiler, result, "nvrtcCreateProgram", name, error);
}

static arfuse_status complain(const arf_compiler *compiler, nvrtcProgram program, const char *name,
                              const option_list *options, arf_error *error)
{
    const arf_nvrtc *nvrtc = &compiler->nvrtc;
    size_t bytes = 0;
    char *text = NULL;
    if (nvrtc->nvrtcGetProgramLogSize(program, &bytes) == NVRTC_SUCCESS && bytes > 0)
        text = calloc(1, bytes + 1);
    if (text != NULL && nvrtc->nvrtcGetProgramLog(program, text) != NVRTC_SUCCESS)
        text[0] = '\0';
    for (int i = 0; i < options->count; i++)
        arf_logf(&compiler->log, ARFUSE_LOG_DEBUG, "%s: option %s", name, options->text[i]);
    arfuse_status status =
        arf_fail(error, ARFUSE_FAILURE, "%s does not compile for %s: %s", name,
                 options->architecture, text != NULL && text[0] != '\0' ? text : "no log");
    free(text);
    return status;
}

static arfuse_status take_image(const arf_compiler *compiler, nvrtcProgram program,
                                const char *name, arf_image *image, arf_error *error)
{
    const arf_nvrtc *nvrtc = &compiler->nvrtc;
    bool binary = compiler->target.binary;
    size_t bytes = 0;
    ARF_TRY(check(compiler,
                  binary ? nvrtc->nvrtcGetCUBINSize(program, &bytes)
                         : nvrtc->nvrtcGetPTXSize(program, &bytes),
                  binary ? "nvrtcGetCUBINSize" : "nvrtcGetPTXSize", name, error));
    char *data = calloc(1, bytes + 1);
    if (data == NULL)
        return arf_fail(error, ARFUSE_FAILURE, "%s: out of memory for %zu bytes of code", name,
                        bytes);
    arfuse_status status = check(
        compiler, binary ? nvrtc->nvrtcGetCUBIN(program, data) : nvrtc->nvrtcGetPTX(program, data),
        binary ? "nvrtcGetCUBIN" : "nvrtcGetPTX", name, error);
    if (status != ARFUSE_OK) {
        free(data);
        return status;
    }
    *image = (arf_image){.data = data, .bytes = bytes};
    return ARFUSE_OK;
}

arfuse_status arf_compile(arf_compiler *compiler, const char *name, const char *const *defines,
                          int count, arf_image *image, arf_error *error)
{
    option_list options = {0};
    *image = (arf_image){0};
    ARF_TRY(collect_options(compiler, defines, count, &options, error));
    arf_cache_key key = make_key(compiler, name, &options);
    if (arf_cache_read(&compiler->cache, key, &image->data, &image->bytes)) {
        compiler->reused++;
        return ARFUSE_OK;
    }
    nvrtcProgram program;
    ARF_TRY(create_program(compiler, name, &program, error));
    arfuse_status status;
    if (compiler->nvrtc.nvrtcCompileProgram(program, options.count, options.text) != NVRTC_SUCCESS)
        status = complain(compiler, program, name, &options, error);
    else
        status = take_image(compiler, program, name, image, error);
    compiler->nvrtc.nvrtcDestroyProgram(&program);
    if (status != ARFUSE_OK)
        return status;
    compiler->compiled++;
    arf_cache_write(&compiler->cache, key, image->data, image->bytes, &compiler->log);
    return ARFUSE_OK;
}
