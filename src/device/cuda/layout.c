/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/layout.h"

#include "rules/sizing.h"

_Static_assert(sizeof(arf_control) <= ARF_CONTROL_BYTES, "the control block outgrew its room");
_Static_assert(ARF_MAILBOX_GENERATIONS == ARF_GENERATIONS, "kernels and sizing count differently");
_Static_assert(ARF_MOST_SHARDS == ARF_HT_MOST_SHARDS, "kernels and sizing count differently");
_Static_assert(ARF_VIEW_RANKS == ARF_MAX_RANKS, "kernels and reader disagree on the largest team");

#define ALIGNMENT 256

/* Puts a mailbox behind what is there already. */
static arf_range place(uint64_t *end, uint64_t bytes)
{
    if (bytes == 0)
        return (arf_range){0, 0};
    arf_range range = {(*end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, bytes};
    *end = range.offset + bytes;
    return range;
}

/* The formulas are the contract of rules/sizing.h; a difference means that one of both changed. */
static arfuse_status compare(const arf_space_spec *spec, arf_protocol protocol, uint64_t bytes,
                             arf_error *error)
{
    int64_t expected;
    ARF_TRY(arf_mailbox_bytes(&spec->shape, protocol, spec->capacity[protocol], &expected, error));
    if ((uint64_t)expected == bytes)
        return ARFUSE_OK;
    return arf_fail(error, ARFUSE_FAILURE,
                    "%s mailboxes take %llu bytes by the layout and %lld by the sizing rule",
                    arf_protocol_name(protocol), (unsigned long long)bytes, (long long)expected);
}

arfuse_status arf_layout_make(const arf_space_spec *spec, arf_layout *layout, arf_error *error)
{
    for (int p = 0; p < ARF_PROTOCOLS; p++)
        if (spec->capacity[p] < 0 || spec->capacity[p] > ARF_MAX_TOKENS)
            return arf_fail(error, ARFUSE_USAGE, "capacity of %s: %lld is not in 0..%d",
                            arf_protocol_name((arf_protocol)p), (long long)spec->capacity[p],
                            ARF_MAX_TOKENS);
    const uint64_t ranks = (uint64_t)spec->shape.tp_size;
    const uint64_t row = (uint64_t)spec->shape.hidden_size * 2;
    const uint64_t generations = ARF_MAILBOX_GENERATIONS;
    const uint64_t ll = (uint64_t)spec->capacity[ARF_LL];
    const uint64_t bt = (uint64_t)spec->capacity[ARF_BT];
    const uint64_t ht = (uint64_t)spec->capacity[ARF_HT];
    const uint64_t unfused = (uint64_t)spec->capacity[ARF_UNFUSED];
    const uint64_t separate = (uint64_t)spec->capacity[ARF_SEPARATE];
    const uint64_t bt_owned = (bt + ranks - 1) / ranks;
    const uint64_t ht_owned = (ht + ranks - 1) / ranks;
    const uint64_t packs = (uint64_t)spec->shape.hidden_size / 8;
    const uint64_t shards = packs < ARF_MOST_SHARDS ? packs : ARF_MOST_SHARDS;
    const uint64_t unfused_owned = (unfused + ranks - 1) / ranks;

    uint64_t end = ARF_CONTROL_BYTES;
    layout->ll = place(&end, generations * ll * ranks * row);
    layout->bt_contribution = place(&end, generations * bt_owned * ranks * row);
    layout->bt_row = place(&end, generations * bt * row);
    layout->ht_contribution = place(&end, ht_owned * ranks * row);
    layout->ht_row = place(&end, ht * row);
    layout->ht_ready = place(&end, ht_owned * ranks * sizeof(arf_word));
    layout->ht_arrived = place(&end, ht * shards * sizeof(arf_word));
    layout->unfused_contribution = place(&end, unfused_owned * ranks * row);
    layout->unfused_row = place(&end, unfused * row);
    layout->segment_bytes = end;
    layout->scratch_bytes =
        spec->shape.top_k > 0 ? (unfused > separate ? unfused : separate) * row : 0;

    if (ll > 0)
        ARF_TRY(compare(spec, ARF_LL, layout->ll.bytes, error));
    if (bt > 0)
        ARF_TRY(compare(spec, ARF_BT, layout->bt_contribution.bytes + layout->bt_row.bytes, error));
    if (ht > 0)
        ARF_TRY(compare(spec, ARF_HT,
                        layout->ht_contribution.bytes + layout->ht_row.bytes +
                            layout->ht_ready.bytes + layout->ht_arrived.bytes,
                        error));
    return ARFUSE_OK;
}

void arf_layout_view(const arf_layout *layout, const arf_space_spec *spec, arf_team_view *view)
{
    view->ll = layout->ll.offset;
    view->bt_contribution = layout->bt_contribution.offset;
    view->bt_row = layout->bt_row.offset;
    view->ht_contribution = layout->ht_contribution.offset;
    view->ht_row = layout->ht_row.offset;
    view->ht_ready = layout->ht_ready.offset;
    view->ht_arrived = layout->ht_arrived.offset;
    view->unfused_contribution = layout->unfused_contribution.offset;
    view->unfused_row = layout->unfused_row.offset;
    view->ll_capacity = spec->capacity[ARF_LL];
    view->bt_capacity = spec->capacity[ARF_BT];
    view->unfused_capacity = spec->capacity[ARF_UNFUSED];
}
