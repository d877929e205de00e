/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an engine joins its layers to arfuse: three layers of attention and MoE, a final norm, and a
 * speculative head, on four ranks of this process.
 *
 *   attention -> [attn_out: all-reduce + residual + norm] -> MoE -> deferred finalize, consumed by
 *   the next layer's norm [moe_out], after the last layer by the final norm [final_norm];
 *   the speculative head takes a reduced sum without a norm [spec_head]
 *
 * Each site can decline. The model runs with all of them fused, with everything unfused, with each
 * site off in turn, and with sites switched at random in every step: the bits are the same.
 *
 * Usage: three_layers [host|cuda] [PROFILE]        a profile of tp 4, hidden 256, top_k 3
 * Each run sets its routes in the options, which stand before ARFUSE_PROFILE and ARFUSE_ROUTES.
 *
 * The layers themselves are toys that compute on the host; with `cuda` their results travel to the
 * GPU and back, and the reductions run there.
 */
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "arfuse.h"
#include "device_memory.h"

namespace
{

constexpr int ranks = 4, hidden = 256, top_k = 3, experts = 5, layers = 3, most_tokens = 48;
enum Site { attn_out, moe_out, final_norm, spec_head, sites };
const char *const site_names[sites] = {"attn_out", "moe_out", "final_norm", "spec_head"};

[[noreturn]] void die(const arfuse_error &error)
{
    std::fprintf(stderr, "three_layers: %s\n", error.text);
    std::exit(error.status);
}

void check(arfuse_status status, const arfuse_error &error)
{
    if (status != ARFUSE_OK)
        die(error);
}

/* ---- bf16 tensors ---------------------------------------------------------------------------- */

float to_float(uint16_t value)
{
    const uint32_t bits = uint32_t(value) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

uint16_t to_bf16(float value) /* nearest even; the model makes no NaN */
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

example_device device; /* of this program */

/* A tensor on the device, and its copy on the host that the toy layers work on. */
template <typename T>
class Array
{
  public:
    explicit Array(size_t count)
        : host(count), memory(static_cast<T *>(device_allocate(&device, count * sizeof(T))))
    {
    }
    ~Array()
    {
        device_release(&device, memory);
    }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    T &operator[](size_t i)
    {
        return host[i];
    }
    const T &operator[](size_t i) const
    {
        return host[i];
    }
    const T *values() const
    {
        return host.data();
    }
    T *data() const
    {
        return memory;
    } /* on the device */
    void push(size_t count) const
    {
        device_upload(&device, memory, host.data(), count * sizeof(T));
    }
    void pull(size_t count)
    {
        device_download(&device, host.data(), memory, count * sizeof(T));
    }

  private:
    std::vector<T> host;
    T *memory;
};

using Tensor = Array<uint16_t>;

/* Stands for weights: a number of its own for each (what, where), in (-1, 1). */
float weight_of(uint32_t what, uint32_t where)
{
    uint64_t z = (uint64_t(what) << 32 | where) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return float(int32_t(z >> 40) - (1 << 23)) / float(1 << 23);
}

/* ---- what a rank has ------------------------------------------------------------------------- */

struct Rank {
    Tensor residual{most_tokens * hidden}, normed{most_tokens * hidden}; /* the stream, its norm */
    Tensor partial{most_tokens * hidden};                                /* this rank's share */
    Tensor routed{most_tokens * top_k * hidden}, shared{most_tokens * hidden};
    Array<float> weights{most_tokens * top_k};
    Array<int32_t> indices{most_tokens * top_k};
};

/* A reduction that is owed: either deferred, or a partial sum that its producer finished itself
 * since the site declined. */
struct Owed {
    arfuse_ticket ticket = ARFUSE_TICKET_INIT;
    bool deferred = false;
};

class Model
{
  public:
    Model(const char *profile, arfuse_routes routes)
    {
        arfuse_options options = ARFUSE_OPTIONS_INIT;
        options.hidden_size = hidden;
        options.top_k = top_k;
        options.local_ranks = ranks;
        options.capacity = most_tokens - 8; /* the longest step is above it */
        options.device = device.cuda ? "cuda" : "host";
        options.profile = profile;
        options.routes[ARFUSE_ALLREDUCE] = options.routes[ARFUSE_FINALIZE] = routes;
        options.sites = site_names;
        options.site_count = sites;
        check(arfuse_workspace_create(nullptr, &options, &workspace, &error), error);
        for (int layer = 0; layer <= 2 * layers; layer++)
            for (int i = 0; i < hidden; i++)
                gamma[layer][i] = to_bf16(1 + weight_of(900 + uint32_t(layer), uint32_t(i)) / 4);
        for (const Tensor &one : gamma)
            one.push(hidden);
    }
    ~Model()
    {
        if (arfuse_workspace_destroy(&workspace, &error) != ARFUSE_OK)
            std::fprintf(stderr, "three_layers: %s\n", error.text);
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;

    void turn(int site, bool on)
    {
        check(arfuse_site_switch(workspace, site, on, &error), error);
    }

    arfuse_counters counters(int site) const
    {
        arfuse_counters result = ARFUSE_COUNTERS_INIT;
        arfuse_site_counters(workspace, site, &result);
        return result;
    }

    /* One decode step; adds everything that it made to the digest. */
    void step(int64_t m, uint32_t seed, uint64_t &digest)
    {
        embed(m, seed);
        Owed owed;
        for (int layer = 0; layer < layers; layer++) {
            if (layer > 0)
                consume(owed, m, moe_out, gamma[2 * layer - 1]);
            attention(layer, m);
            reduce(m, attn_out, gamma[2 * layer]);
            owed = moe(layer, m, layer + 1 < layers ? moe_out : final_norm);
        }
        consume(owed, m, final_norm, gamma[2 * layers - 1]);
        add_to_digest(digest, m, &Rank::residual);
        add_to_digest(digest, m, &Rank::normed);
        speculate(m);
        add_to_digest(digest, m, &Rank::partial);
        /* Names a reduction that somebody forgot. */
        check(arfuse_end_step(workspace, &error), error);
    }

  private:
    arfuse_workspace *workspace = nullptr;
    arfuse_error error = ARFUSE_ERROR_INIT;
    Rank rank[ranks];
    Tensor gamma[2 * layers + 1] = {Tensor(hidden), Tensor(hidden), Tensor(hidden), Tensor(hidden),
                                    Tensor(hidden), Tensor(hidden), Tensor(hidden)};

    arfuse_call call_at(int64_t m, int site) const
    {
        arfuse_call call = ARFUSE_CALL_INIT;
        call.tokens = m;
        call.site = site;
        call.stream = device.stream;
        return call;
    }

    /* The consumer's half: the stream is updated in place. */
    std::vector<arfuse_operands> wanted(const Tensor &norm_weight)
    {
        std::vector<arfuse_operands> all(ranks, ARFUSE_OPERANDS_INIT);
        for (int r = 0; r < ranks; r++) {
            all[r].residual = all[r].residual_out = rank[r].residual.data();
            all[r].gamma = norm_weight.data();
            all[r].norm_out = rank[r].normed.data();
        }
        return all;
    }

    void embed(int64_t m, uint32_t seed)
    {
        for (Rank &own : rank)
            for (int64_t i = 0; i < m * hidden; i++) {
                own.residual[i] = to_bf16(weight_of(seed, uint32_t(i)));
                own.normed[i] = to_bf16(2 * weight_of(seed + 1, uint32_t(i)));
            }
        for (const Rank &own : rank)
            own.residual.push(m * hidden);
    }

    /* Row-parallel output projection: every rank has a partial sum of the whole row. */
    void attention(int layer, int64_t m)
    {
        for (int r = 0; r < ranks; r++)
            for (int64_t t = 0; t < m; t++)
                for (int h = 0; h < hidden; h++) {
                    const int from = (h * 5 + r * 7 + layer) % hidden;
                    rank[r].partial[t * hidden + h] =
                        to_bf16(to_float(rank[r].normed[t * hidden + from]) *
                                weight_of(uint32_t(100 * layer + r), uint32_t(h)));
                }
        for (const Rank &own : rank)
            own.partial.push(m * hidden);
    }

    /* Attention hands its partial sum straight to the norm behind it. */
    void reduce(int64_t m, int site, const Tensor &norm_weight)
    {
        const arfuse_call call = call_at(m, site);
        std::vector<arfuse_operands> all = wanted(norm_weight);
        for (int r = 0; r < ranks; r++)
            all[r].input = rank[r].partial.data();
        check(arfuse_allreduce(workspace, &call, all.data(), &error), error);
        pull_stream(m);
    }

    /* What the next toy layer reads. */
    void pull_stream(int64_t m)
    {
        for (Rank &own : rank) {
            own.residual.pull(m * hidden);
            own.normed.pull(m * hidden);
        }
    }

    /* Expert outputs, one row for each (token, slot); rank r's experts do not see every slot. */
    Owed moe(int layer, int64_t m, int consumer)
    {
        for (int r = 0; r < ranks; r++) {
            Rank &own = rank[r];
            for (int64_t t = 0; t < m; t++) {
                for (int k = 0; k < top_k; k++) {
                    const int64_t slot = t * top_k + k;
                    const int expert = int(t + 2 * k + layer) % experts;
                    own.indices[slot] = (expert + r) % experts == 0 ? -1 : int32_t(slot);
                    own.weights[slot] = 0.2f + 0.1f * float(k);
                    for (int h = 0; h < hidden; h++)
                        own.routed[slot * hidden + h] =
                            to_bf16(to_float(own.normed[t * hidden + (h + expert) % hidden]) *
                                    weight_of(uint32_t(300 + 20 * layer + expert),
                                              uint32_t(h * ranks + r)));
                }
                for (int h = 0; h < hidden; h++)
                    own.shared[t * hidden + h] =
                        to_bf16(to_float(own.normed[t * hidden + h]) *
                                weight_of(uint32_t(500 + layer), uint32_t(h * ranks + r)));
            }
        }
        const arfuse_call call = call_at(m, consumer);
        Owed owed;
        owed.deferred = arfuse_would_fuse(workspace, ARFUSE_FINALIZE, &call) != 0;
        if (owed.deferred)
            defer(call, layer, owed);
        else
            finalize_here(m);
        return owed;
    }

    void defer(const arfuse_call &call, int layer, Owed &owed)
    {
        char label[32];
        std::snprintf(label, sizeof label, "layer %d moe", layer);
        std::vector<arfuse_operands> made(ranks, ARFUSE_OPERANDS_INIT);
        for (int r = 0; r < ranks; r++) {
            rank[r].routed.push(call.tokens * top_k * hidden);
            rank[r].weights.push(call.tokens * top_k);
            rank[r].indices.push(call.tokens * top_k);
            rank[r].shared.push(call.tokens * hidden);
            made[r].routed = rank[r].routed.data();
            made[r].routed_rows = call.tokens * top_k;
            made[r].weights = rank[r].weights.data();
            made[r].weights_type = ARFUSE_WEIGHTS_FP32;
            made[r].indices = rank[r].indices.data();
            made[r].shared = rank[r].shared.data();
        }
        check(arfuse_defer(workspace, ARFUSE_FINALIZE, &call, made.data(), label, &owed.ticket,
                           &error),
              error);
    }

    /* The site declined: the MoE finalizes by itself, as it would without arfuse. The arithmetic is
     * the contract's, so that the bits stay. */
    void finalize_here(int64_t m)
    {
        for (Rank &own : rank)
            for (int64_t t = 0; t < m; t++)
                for (int h = 0; h < hidden; h++) {
                    float sum = 0;
                    for (int k = 0; k < top_k; k++)
                        if (own.indices[t * top_k + k] >= 0)
                            sum = std::fmaf(
                                own.weights[t * top_k + k],
                                to_float(own.routed[own.indices[t * top_k + k] * hidden + h]), sum);
                    own.partial[t * hidden + h] =
                        to_bf16(sum + to_float(own.shared[t * hidden + h]));
                }
        for (const Rank &own : rank)
            own.partial.push(m * hidden);
    }

    /* The norm that comes next pays what the MoE left. */
    void consume(const Owed &owed, int64_t m, int site, const Tensor &norm_weight)
    {
        if (!owed.deferred) {
            reduce(m, site, norm_weight);
            return;
        }
        const arfuse_call call = call_at(m, site);
        check(arfuse_consume(workspace, owed.ticket, &call, wanted(norm_weight).data(), &error),
              error);
        pull_stream(m);
    }

    /* The head reads the final norm through a projection of its own, and no norm follows: the sum
     * is materialised in place. */
    void speculate(int64_t m)
    {
        attention(layers, m);
        const arfuse_call call = call_at(m, spec_head);
        std::vector<arfuse_operands> made(ranks, ARFUSE_OPERANDS_INIT);
        std::vector<void *> sum(ranks);
        for (int r = 0; r < ranks; r++)
            made[r].input = sum[r] = rank[r].partial.data();
        arfuse_ticket ticket = ARFUSE_TICKET_INIT;
        check(arfuse_defer(workspace, ARFUSE_ALLREDUCE, &call, made.data(), "speculative head",
                           &ticket, &error),
              error);
        check(arfuse_materialise(workspace, ticket, &call, sum.data(), &error), error);
        for (Rank &own : rank)
            own.partial.pull(m * hidden);
    }

    /* All ranks must hold the same. */
    void add_to_digest(uint64_t &digest, int64_t m, Tensor Rank::*tensor)
    {
        const size_t count = size_t(m) * hidden;
        for (int r = 1; r < ranks; r++)
            if (std::memcmp((rank[r].*tensor).values(), (rank[0].*tensor).values(), 2 * count) !=
                0) {
                std::fprintf(stderr, "three_layers: rank %d differs from rank 0\n", r);
                std::exit(ARFUSE_WRONG_RESULT);
            }
        for (size_t i = 0; i < count; i++)
            digest = (digest ^ (rank[0].*tensor)[i]) * 0x100000001b3u;
    }
};

/* ---- runs ------------------------------------------------------------------------------------ */

/* Decode steps of a batch that grows and shrinks, an idle one, and one above the capacity. */
constexpr int64_t batch[] = {1, 7, 0, 33, 16, most_tokens, 3, 1};

enum Mode { as_is, one_off, at_random };

uint64_t run(Model &model, Mode mode, int off)
{
    uint64_t digest = 0xcbf29ce484222325u;
    uint32_t seed = 1, dice = 12345;
    for (int64_t m : batch) {
        for (int site = 0; site < sites; site++) {
            dice = dice * 1664525 + 1013904223;
            model.turn(site, mode == as_is     ? true
                             : mode == one_off ? site != off
                                               : (dice >> 16 & 1) != 0);
        }
        model.step(m, seed += 2, digest);
    }
    return digest;
}

bool report(const char *what, uint64_t digest, uint64_t expected)
{
    const bool same = digest == expected;
    std::printf("%-24s %016llx%s\n", what, static_cast<unsigned long long>(digest),
                same ? "" : "  DIFFERS");
    return same;
}

} // namespace

int main(int argc, char **argv)
{
    const bool named = argc > 1 && (!std::strcmp(argv[1], "cuda") || !std::strcmp(argv[1], "host"));
    const char *profile = argc > 1 + named ? argv[1 + named] : nullptr;
    if (argc > 2 + named || (profile && profile[0] == '-')) {
        std::fprintf(stderr,
                     "usage: three_layers [host|cuda] [PROFILE], of tp %d, hidden %d, top_k %d\n",
                     ranks, hidden, top_k);
        return 2;
    }
    device_open(&device, named && !std::strcmp(argv[1], "cuda"));
    const arfuse_routes routes = profile ? ARFUSE_ROUTES_PROFILE : ARFUSE_ROUTES_DEFAULT;
    bool same = true;

    Model model(profile, routes);
    const uint64_t fused = run(model, as_is, 0);
    same &= report("all sites fused", fused, fused);
    {
        Model plain(nullptr, ARFUSE_ROUTES_UNFUSED);
        same &= report("everything unfused", run(plain, as_is, 0), fused);
    }
    for (int site = 0; site < sites; site++) {
        char what[48];
        std::snprintf(what, sizeof what, "%s declines", site_names[site]);
        same &= report(what, run(model, one_off, site), fused);
    }
    same &= report("sites at random", run(model, at_random, 0), fused);

    std::printf("\n%-12s %7s %7s %9s %9s %9s\n", "site", "calls", "fused", "declined", "deferred",
                "launches");
    for (int site = 0; site < sites; site++) {
        const arfuse_counters c = model.counters(site);
        std::printf("%-12s %7llu %7llu %9llu %9llu %9llu\n", site_names[site],
                    static_cast<unsigned long long>(c.calls),
                    static_cast<unsigned long long>(c.fused),
                    static_cast<unsigned long long>(c.declined),
                    static_cast<unsigned long long>(c.deferred),
                    static_cast<unsigned long long>(c.launches));
    }
    std::printf("\n%s\n", same ? "the same bits every time" : "THE BITS DIFFER");
    return same ? 0 : ARFUSE_WRONG_RESULT;
}
