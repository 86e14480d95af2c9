/* Conversions to and from floats of 8 bits or fewer, with and without a scale. */
#include "operands.h"

static Format fp8_of(const Wave *w) {
    return formats[w->group->module->target == GFX942 ? FP8_FNUZ : FP8];
}
static Format bf8_of(const Wave *w) {
    return formats[w->group->module->target == GFX942 ? BF8_FNUZ : BF8];
}
/* MODE.FP16_OVFL: too large becomes the largest number rather than NaN or infinity. */
static bool saturates(const Wave *w) { return w->mode >> 23 & 1; }

/* op_sel of a conversion picks bytes or halves of source or result; it is no f16 operand select. */
static Inst without_op_sel(const Inst *i) {
    Inst plain = *i;
    plain.op_sel = 0;
    plain.simple =
        !plain.abs && !plain.neg && !plain.omod && !plain.clamp && !plain.dpp && !plain.sdwa;
    return plain;
}

static void from_small(Wave *w, const Inst *i, Format f) {
    Row ta, d;
    const u32 *a = source(w, i, 0, KIND_INT, ta);
    EACH_LANE d[l] = from_f32(small_to_f32(a[l] & 255, f));
    result(w, i, d, KIND_F32);
}
static void exec_v_cvt_f32_fp8(Wave *w, const Inst *i) { from_small(w, i, fp8_of(w)); }
static void exec_v_cvt_f32_bf8(Wave *w, const Inst *i) { from_small(w, i, bf8_of(w)); }

/* Two bytes of one half of the source to two registers. */
static void pair_from_small(Wave *w, const Inst *i, Format f) {
    Inst plain = without_op_sel(i);
    Row ta;
    Row64 d;
    const u32 *a = source(w, &plain, 0, KIND_INT, ta);
    int shift = i->op_sel & 1 ? 16 : 0;
    EACH_LANE d[l] = (u64)from_f32(small_to_f32(a[l] >> (shift + 8) & 255, f)) << 32 |
                     from_f32(small_to_f32(a[l] >> shift & 255, f));
    plain.sdwa = false; /* the select is spent on the source; the result is a whole pair */
    write_result64(w, &plain, d, false);
}
static void exec_v_cvt_pk_f32_fp8(Wave *w, const Inst *i) { pair_from_small(w, i, fp8_of(w)); }
static void exec_v_cvt_pk_f32_bf8(Wave *w, const Inst *i) { pair_from_small(w, i, bf8_of(w)); }

/* Two floats to two bytes, into the half that op_sel names; the other half is kept. */
static void pair_to_small(Wave *w, const Inst *i, Format f) {
    Inst plain = without_op_sel(i);
    Row ta, tb, d;
    const u32 *a = source(w, &plain, 0, KIND_F32, ta), *b = source(w, &plain, 1, KIND_F32, tb);
    const u32 *old = w->v[i->dst];
    bool high = i->op_sel >> 3 & 1, limit = saturates(w);
    EACH_LANE {
        u32 x = f32_to_small(as_f32(a[l]), f, -1, limit) | f32_to_small(as_f32(b[l]), f, -1, limit)
                                                               << 8;
        d[l] = high ? x << 16 | (old[l] & 0xffff) : x | (old[l] & 0xffff0000);
    }
    result(w, &plain, d, KIND_INT);
}
static void exec_v_cvt_pk_fp8_f32(Wave *w, const Inst *i) { pair_to_small(w, i, fp8_of(w)); }
static void exec_v_cvt_pk_bf8_f32(Wave *w, const Inst *i) { pair_to_small(w, i, bf8_of(w)); }

/* One float, rounded with the noise of src1, into the byte that op_sel[3:2] names. */
static void noisy_to_small(Wave *w, const Inst *i, Format f) {
    Inst plain = without_op_sel(i);
    Row ta, tb, d;
    const u32 *a = source(w, &plain, 0, KIND_F32, ta), *b = source(w, &plain, 1, KIND_INT, tb);
    const u32 *old = w->v[i->dst];
    int shift = 8 * (i->op_sel >> 2 & 3);
    EACH_LANE d[l] = (old[l] & ~(255u << shift)) | f32_to_small(as_f32(a[l]), f, b[l], saturates(w))
                                                       << shift;
    result(w, &plain, d, KIND_INT);
}
static void exec_v_cvt_sr_fp8_f32(Wave *w, const Inst *i) { noisy_to_small(w, i, fp8_of(w)); }
static void exec_v_cvt_sr_bf8_f32(Wave *w, const Inst *i) { noisy_to_small(w, i, bf8_of(w)); }

/* The scale of the gfx950 conversions is the exponent of a float: 2^(e - 127). */
static inline float scale_of(u32 x) {
    u32 e = x >> 23 & 255;
    return e == 255 ? NAN : e == 0 ? 0x1p-127f : as_f32(e << 23);
}

typedef enum { TO_F32, TO_F16, TO_BF16 } Wide;
static inline u32 wide_from_f32(float x, Wide wide) {
    return wide == TO_F32 ? from_f32(x) : wide == TO_F16 ? from_f16(x) : from_bf16(x);
}
static inline float wide_to_f32(u32 x, Wide wide) {
    return wide == TO_F32 ? as_f32(x) : wide == TO_F16 ? as_f16(x) : as_bf16(x);
}

/* Two small floats times a scale. op_sel picks the byte (fp4) or the half (fp8) of the source. */
static void scaled_pair(Wave *w, const Inst *i, Format f, Wide wide) {
    Inst plain = without_op_sel(i);
    Row ta, tb, low, high;
    const u32 *a = source(w, &plain, 0, KIND_INT, ta), *s = source(w, &plain, 1, KIND_INT, tb);
    int bits = 1 + f.exponent_bits + f.mantissa_bits;
    int shift = bits == 4 ? 8 * (i->op_sel & 3) : 16 * (i->op_sel & 1);
    u32 code = (1u << bits) - 1;
    EACH_LANE {
        float scale = scale_of(s[l]);
        low[l] = wide_from_f32(small_to_f32(a[l] >> shift & code, f) * scale, wide);
        high[l] = wide_from_f32(small_to_f32(a[l] >> (shift + bits) & code, f) * scale, wide);
    }
    u64 mask = lanes_written(w, &plain);
    if (wide == TO_F32) {
        write_row(w, i->dst, low, mask);
        write_row(w, i->dst + 1u, high, mask);
    } else {
        EACH_LANE low[l] |= high[l] << 16;
        write_row(w, i->dst, low, mask);
    }
}

/* Two floats divided by a scale, to two small floats, into the byte (fp4) or half (fp8) that the
 * upper op_sel bits name; the rest is kept. 16-bit sources come packed in src0. */
static void pair_to_scaled(Wave *w, const Inst *i, Format f, Wide wide) {
    Inst plain = without_op_sel(i);
    Row ta, tb, tc, d;
    const u32 *a = source(w, &plain, 0, wide == TO_F32 ? KIND_F32 : KIND_INT, ta);
    const u32 *b = wide == TO_F32 ? source(w, &plain, 1, KIND_F32, tb) : a;
    const u32 *s = source(w, &plain, wide == TO_F32 ? 2 : 1, KIND_INT, tc), *old = w->v[i->dst];
    int bits = 1 + f.exponent_bits + f.mantissa_bits;
    int shift = bits == 4 ? 8 * (i->op_sel >> 2 & 3) : 16 * (i->op_sel >> 3 & 1);
    u32 kept = ~(((1u << 2 * bits) - 1) << shift);
    EACH_LANE {
        float scale = scale_of(s[l]);
        float x = wide_to_f32(wide == TO_F32 ? a[l] : a[l] & 0xffff, wide);
        float y = wide_to_f32(wide == TO_F32 ? b[l] : a[l] >> 16, wide);
        u32 code = f32_to_small(x / scale, f, -1, saturates(w)) |
                   f32_to_small(y / scale, f, -1, saturates(w)) << bits;
        d[l] = (old[l] & kept) | code << shift;
    }
    write_row(w, i->dst, d, lanes_written(w, &plain));
}
#define SCALED(name, format, wide) \
    static void exec_##name(Wave *w, const Inst *i) { scaled_pair(w, i, formats[format], wide); }
SCALED(v_cvt_scalef32_pk_f32_fp4, FP4, TO_F32)
SCALED(v_cvt_scalef32_pk_f16_fp4, FP4, TO_F16)
SCALED(v_cvt_scalef32_pk_bf16_fp4, FP4, TO_BF16)
SCALED(v_cvt_scalef32_pk_f32_fp8, FP8, TO_F32)
SCALED(v_cvt_scalef32_pk_f16_fp8, FP8, TO_F16)
SCALED(v_cvt_scalef32_pk_bf16_fp8, FP8, TO_BF16)
SCALED(v_cvt_scalef32_pk_f32_bf8, BF8, TO_F32)
SCALED(v_cvt_scalef32_pk_f16_bf8, BF8, TO_F16)
SCALED(v_cvt_scalef32_pk_bf16_bf8, BF8, TO_BF16)
#define UNSCALED(name, format, wide) \
    static void exec_##name(Wave *w, const Inst *i) { pair_to_scaled(w, i, formats[format], wide); }
UNSCALED(v_cvt_scalef32_pk_fp4_f32, FP4, TO_F32)
UNSCALED(v_cvt_scalef32_pk_fp4_f16, FP4, TO_F16)
UNSCALED(v_cvt_scalef32_pk_fp4_bf16, FP4, TO_BF16)
UNSCALED(v_cvt_scalef32_pk_fp8_f32, FP8, TO_F32)
UNSCALED(v_cvt_scalef32_pk_fp8_f16, FP8, TO_F16)
UNSCALED(v_cvt_scalef32_pk_fp8_bf16, FP8, TO_BF16)
UNSCALED(v_cvt_scalef32_pk_bf8_f32, BF8, TO_F32)
UNSCALED(v_cvt_scalef32_pk_bf8_f16, BF8, TO_F16)
UNSCALED(v_cvt_scalef32_pk_bf8_bf16, BF8, TO_BF16)

/* ---- the list ----------------------------------------------------------------------------- */

/* clang-format off */
#define ROW(num, nm, on) {.encoding = VOP, .class = CLASS_VALU, .targets = on, .number = num, \
                          .name = #nm, .exec = exec_##nm},
const Op convert_ops[] = {
    ROW(VOP1_BASE + 84, v_cvt_f32_fp8, ON_BOTH)
    ROW(VOP1_BASE + 85, v_cvt_f32_bf8, ON_BOTH)
    ROW(VOP1_BASE + 86, v_cvt_pk_f32_fp8, ON_BOTH)
    ROW(VOP1_BASE + 87, v_cvt_pk_f32_bf8, ON_BOTH)
    ROW(565, v_cvt_scalef32_pk_fp8_f32, ON_950)
    ROW(566, v_cvt_scalef32_pk_bf8_f32, ON_950)
    ROW(569, v_cvt_scalef32_pk_f32_fp8, ON_950)
    ROW(570, v_cvt_scalef32_pk_f32_bf8, ON_950)
    ROW(573, v_cvt_scalef32_pk_fp4_f32, ON_950)
    ROW(575, v_cvt_scalef32_pk_f32_fp4, ON_950)
    ROW(576, v_cvt_scalef32_pk_fp8_f16, ON_950)
    ROW(577, v_cvt_scalef32_pk_bf8_f16, ON_950)
    ROW(580, v_cvt_scalef32_pk_fp8_bf16, ON_950)
    ROW(581, v_cvt_scalef32_pk_bf8_bf16, ON_950)
    ROW(584, v_cvt_scalef32_pk_f16_fp8, ON_950)
    ROW(585, v_cvt_scalef32_pk_f16_bf8, ON_950)
    ROW(588, v_cvt_scalef32_pk_fp4_f16, ON_950)
    ROW(589, v_cvt_scalef32_pk_fp4_bf16, ON_950)
    ROW(592, v_cvt_scalef32_pk_f16_fp4, ON_950)
    ROW(593, v_cvt_scalef32_pk_bf16_fp4, ON_950)
    ROW(617, v_cvt_scalef32_pk_bf16_fp8, ON_950)
    ROW(618, v_cvt_scalef32_pk_bf16_bf8, ON_950)
    ROW(674, v_cvt_pk_fp8_f32, ON_BOTH)
    ROW(675, v_cvt_pk_bf8_f32, ON_BOTH)
    ROW(676, v_cvt_sr_fp8_f32, ON_BOTH)
    ROW(677, v_cvt_sr_bf8_f32, ON_BOTH)
};
const int num_convert_ops = sizeof convert_ops / sizeof *convert_ops;
