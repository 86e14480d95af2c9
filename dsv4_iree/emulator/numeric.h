/* Number formats: half, bfloat16, and every float of 8 bits or fewer, to and from float. */
#pragma once
#include <math.h>
#include "emu.h"

static inline float as_f32(u32 x) {
    float f;
    memcpy(&f, &x, 4);
    return f;
}
static inline u32 from_f32(float f) {
    u32 x;
    memcpy(&x, &f, 4);
    return x;
}
static inline double as_f64(u64 x) {
    double f;
    memcpy(&f, &x, 8);
    return f;
}
static inline u64 from_f64(double f) {
    u64 x;
    memcpy(&x, &f, 8);
    return x;
}
static inline u32 from_f16(float f) {
    _Float16 g = (_Float16)f;
    u16 h;
    memcpy(&h, &g, 2);
    return h;
}
static inline u32 from_f16d(double f) {
    _Float16 g = (_Float16)f;
    u16 h;
    memcpy(&h, &g, 2);
    return h;
}
static inline float as_bf16(u32 x) { return as_f32(x << 16); }

static inline bool is_nan32(u32 x) { return (x & 0x7fffffff) > 0x7f800000; }

static inline u32 from_bf16(float f) {
    u32 x = from_f32(f);
    if (is_nan32(x)) return x >> 16 | 0x40;
    return (x + 0x7fff + (x >> 16 & 1)) >> 16; /* nearest, ties to even */
}

/* A float of 8 bits or fewer. `fnuz` formats have one NaN, the code of minus zero, no infinity. */
typedef struct {
    u8 exponent_bits, mantissa_bits, bias;
    bool fnuz, has_inf, has_nan;
} Format;

typedef enum { FP8, BF8, FP6, BF6, FP4, FP8_FNUZ, BF8_FNUZ, NUM_FORMATS } FormatName;

/* In the order of the format codes of the f8f6f4 instructions, then gfx942's own. */
static const Format formats[NUM_FORMATS] = {
    [FP8] = {4, 3, 7, false, false, true},      [BF8] = {5, 2, 15, false, true, true},
    [FP6] = {2, 3, 1, false, false, false},     [BF6] = {3, 2, 3, false, false, false},
    [FP4] = {2, 1, 1, false, false, false},     [FP8_FNUZ] = {4, 3, 8, true, false, true},
    [BF8_FNUZ] = {5, 2, 16, true, false, true},
};

/* Normal numbers differ from a float by the bias alone; subnormals are integers times a power of
 * two. Neither step makes a subnormal float, so the wave's flush mode does not matter. */
static inline float small_to_f32(u32 code, Format f) {
    int sign_bit = f.exponent_bits + f.mantissa_bits;
    u32 top = (1u << sign_bit) - 1, infinity = top & ~((1u << f.mantissa_bits) - 1);
    u32 magnitude = code & top, sign = code >> sign_bit & 1;
    u32 normal = (magnitude << (23 - f.mantissa_bits)) + ((u32)(127 - f.bias) << 23);
    float subnormal = (float)(i32)magnitude * as_f32((u32)(128 - f.bias - f.mantissa_bits) << 23);
    u32 bits = magnitude >> f.mantissa_bits ? normal : from_f32(subnormal);
    bool nan = f.fnuz      ? (code & (top | 1u << sign_bit)) == 1u << sign_bit
               : f.has_inf ? magnitude > infinity
                           : f.has_nan && magnitude == top;
    bits = f.has_inf && magnitude == infinity ? 0x7f800000 : bits;
    bits = nan ? 0x7fc00000 : bits;
    return as_f32(bits | sign << 31);
}

/* A half is one more such format; in this form, unlike a conversion instruction's, compilers can
 * do sixteen at a time. */
static inline float as_f16(u32 x) {
    const Format half = {5, 10, 15, false, true, true};
    return small_to_f32(x & 0xffff, half);
}

/* Half, towards zero. */
static inline u32 from_f16_rtz(float f) {
    u32 h = from_f16(f);
    if (isnan(f) || isinf(f)) return h;
    if (fabsf(as_f16(h)) > fabsf(f)) h--; /* one step back towards zero, infinity included */
    return h;
}

static inline u32 largest_code(Format f) {
    u32 top = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
    if (f.fnuz || !f.has_nan) return top;
    return f.has_inf ? top & ~(1u << f.mantissa_bits) : top - 1;
}

/* Round `x` to the format. `noise` < 0: nearest, ties to even; otherwise stochastic: the 32 noise
 * bits are added below the last kept bit. `saturate`: too large becomes the largest number. */
static inline u32 f32_to_small(float x, Format f, i64 noise, bool saturate) {
    int sign_bit = f.exponent_bits + f.mantissa_bits;
    u32 bits = from_f32(x), sign = bits >> 31 << sign_bit, largest = largest_code(f);
    u32 nan = f.fnuz ? 1u << sign_bit : sign | ((1u << sign_bit) - 1);
    u32 overflow = f.fnuz ? nan : f.has_inf ? sign | (largest + 1) : nan;
    if (!f.has_nan) saturate = true;
    if (isnan(x)) return f.has_nan ? nan : sign | largest;
    if (isinf(x)) return saturate && !f.has_inf ? sign | largest : overflow;
    int exponent = (int)(bits >> 23 & 255);
    u64 mantissa = bits & 0x7fffff;
    if (exponent) mantissa |= 0x800000;
    else exponent = 1;
    int drop = 23 - f.mantissa_bits; /* bits below the kept ones, more for subnormals */
    int e = exponent - 127 + f.bias;
    if (e < 1) drop += 1 - e, e = 1;
    if (drop > 40) drop = 40;
    u64 kept = mantissa >> drop, rest = mantissa & ((1ull << drop) - 1);
    if (noise < 0) {
        u64 half = 1ull << (drop - 1);
        kept += rest > half || (rest == half && (kept & 1));
    } else {
        u64 add = drop >= 32 ? (u64)noise << (drop - 32) : (u64)noise >> (32 - drop);
        kept += rest + add >= 1ull << drop;
    }
    /* The carry out of the mantissa runs into the exponent by itself. */
    u64 code = kept + ((u64)(e - 1) << f.mantissa_bits);
    if (code > largest) return saturate ? sign | largest : overflow;
    if (f.fnuz && code == 0) return 0;
    return sign | (u32)code;
}

/* Minimum and maximum as the hardware has them: a NaN gives way to a number, -0 < +0. */
static inline float min_num(float a, float b) {
    u32 both = from_f32(a) | from_f32(b);
    return isnan(a) ? b : isnan(b) ? a : a < b ? a : b < a ? b : a == 0 ? as_f32(both) : a;
}
static inline float max_num(float a, float b) {
    u32 both = from_f32(a) & from_f32(b);
    return isnan(a) ? b : isnan(b) ? a : a > b ? a : b > a ? b : a == 0 ? as_f32(both) : a;
}
static inline double min_num64(double a, double b) {
    return isnan(a) ? b : isnan(b) ? a : a < b ? a : b < a ? b : signbit(a) ? a : b;
}
static inline double max_num64(double a, double b) {
    return isnan(a) ? b : isnan(b) ? a : a > b ? a : b > a ? b : signbit(a) ? b : a;
}
/* IEEE 754-2019 minimum and maximum: a NaN wins. */
static inline float min_ieee(float a, float b) {
    return isnan(a) ? a : isnan(b) ? b : min_num(a, b);
}
static inline float max_ieee(float a, float b) {
    return isnan(a) ? a : isnan(b) ? b : max_num(a, b);
}

/* Float to integer: towards zero, out of range to the nearest end, NaN to 0. */
static inline u32 to_u32(double x) {
    return !(x > 0) ? 0 : x >= 4294967295.0 ? 0xffffffffu : (u32)x;
}
static inline i32 to_i32(double x) {
    return isnan(x)             ? 0
           : x >= 2147483647.0  ? 2147483647
           : x <= -2147483648.0 ? (-2147483647 - 1)
                                : (i32)x;
}
static inline u32 to_u16(float x) { return !(x > 0) ? 0 : x >= 65535 ? 65535 : (u32)x; }
static inline i32 to_i16(float x) {
    return isnan(x) ? 0 : x >= 32767 ? 32767 : x <= -32768 ? -32768 : (i32)x;
}
