/* SPDX-License-Identifier: Apache-2.0 */
#include "support/floats.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

float second_fmaf(float a, float b, float c)
{
    const double product = (double)a * (double)b; /* exact: 48 bits */
    double sum = product + (double)c;
    if (!isfinite(sum))
        return (float)sum;
    /* The error of the addition, exact (Knuth). */
    const double part = sum - product;
    const double error = (product - (sum - part)) + ((double)c - part);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (error != 0 && !(bits & 1)) { /* to odd: towards the exact value */
        bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
        memcpy(&sum, &bits, sizeof bits);
    }
    return (float)sum;
}

static float padded_tree(const float *term, int count, int first, int width)
{
    if (width == 1)
        return first < count ? term[first] : 0.0f;
    return padded_tree(term, count, first, width / 2) +
           padded_tree(term, count, first + width / 2, width / 2);
}

float second_tree(const float *term, int count)
{
    int width = 1;
    while (width < count)
        width *= 2;
    return padded_tree(term, count, 0, width);
}

float second_inverse(float sum, int hidden, float epsilon)
{
    const float mean = (float)((double)sum / (double)hidden);
    const float shifted = (float)((double)mean + (double)epsilon);
    const float root = (float)sqrt((double)shifted);
    return (float)(1.0 / (double)root);
}

uint16_t second_bf16(float value)
{
    if (isnan(value))
        return 0x7fff;
    const int negative = signbit(value) != 0;
    const double magnitude = fabs((double)value);
    /* Binary search among the 0x7f80 finite magnitudes, which grow with their bits. */
    uint32_t low = 0, high = 0x7f80;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        const uint32_t wide = middle << 16;
        float at;
        memcpy(&at, &wide, sizeof at);
        if ((double)at <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const uint32_t wide = low << 16;
    float below_as_float;
    memcpy(&below_as_float, &wide, sizeof wide);
    const double below = below_as_float;
    /* The step above `low`; past the largest finite it counts as if the range went on. */
    const int exponent = low >> 7 ? (int)(low >> 7) : 1;
    const double above = below + ldexp(1.0, exponent - 127 - 7);
    const double middle = below + (above - below) / 2;
    uint32_t nearest = low;
    if (magnitude > middle || (magnitude == middle && (low & 1)))
        nearest = low + 1;
    if (isinf(value))
        nearest = 0x7f80;
    return (uint16_t)(nearest | (negative ? 0x8000u : 0u));
}

uint64_t hostile_modes_on(void)
{
#if defined(__SSE__)
    const uint64_t saved = _mm_getcsr();
    fesetround(FE_UPWARD);
    _mm_setcsr(_mm_getcsr() | 0x8040u);
    return saved;
#elif defined(__aarch64__)
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    const uint64_t hostile = saved | 1u << 24 | 1u << 22; /* FZ, towards plus infinity */
    __asm__ volatile("msr fpcr, %0" : : "r"(hostile) : "memory");
    return saved;
#else
    const uint64_t saved = (uint64_t)fegetround();
    fesetround(FE_UPWARD);
    return saved;
#endif
}

void hostile_modes_off(uint64_t saved)
{
#if defined(__SSE__)
    fesetround(FE_TONEAREST);
    _mm_setcsr((unsigned)saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(saved) : "memory");
#else
    fesetround((int)saved);
#endif
}

int hostile_modes_hold(void)
{
    if (fegetround() != FE_UPWARD)
        return 0;
#if defined(__SSE__)
    return (_mm_getcsr() & 0x8040u) == 0x8040u;
#else
    volatile float tiny = 1e-40f;
#if defined(__aarch64__)
    return tiny * 1.0f == 0.0f;
#else
    return tiny != 0.0f;
#endif
#endif
}

uint32_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}
