/* Vector opcodes: lane by lane, plus what moves between lanes, carries, and division. */
#include "operands.h"

/* ---- meanings that need more than an expression ------------------------------------------- */

static inline u32 reversed32(u32 x) {
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
}

/* The low 24 bits as a signed number. */
static inline i32 low24(i32 x) { return (i32)((u32)x << 8) >> 8; }

static inline u32 first_bit_after_sign(i32 x) {
    u32 y = (u32)(x < 0 ? ~x : x);
    return y ? (u32)__builtin_clz(y) : ~0u;
}

static inline u32 bit_field(u32 x, u32 offset, u32 width) {
    return x >> (offset & 31) & ((1u << (width & 31)) - 1);
}

static inline u32 bit_field_signed(u32 x, u32 offset, u32 width) {
    width &= 31;
    u32 low = bit_field(x, offset, width), sign = width ? 1u << (width - 1) : 0;
    return (low ^ sign) - sign;
}

/* v_perm_b32: each selector byte picks one of the eight bytes of {a, b}, a sign fill, 0 or 255. */
static inline u32 permuted(u32 a, u32 b, u32 selectors) {
    u64 bytes = (u64)a << 32 | b;
    u32 r = 0;
    for (int n = 0; n < 4; n++) {
        u32 s = selectors >> 8 * n & 255, x;
        if (s < 8) x = (u32)(bytes >> 8 * s) & 255;
        else if (s < 12) x = bytes >> (16 * (s - 8) + 15) & 1 ? 255 : 0;
        else x = s == 12 ? 0 : 255;
        r |= x << 8 * n;
    }
    return r;
}

static inline float median(float a, float b, float c) {
    if (isnan(a) || isnan(b) || isnan(c)) return min_num(min_num(a, b), c);
    return max_num(min_num(a, b), min_num(max_num(a, b), c));
}

static inline u32 sum_of_byte_differences(u32 a, u32 b, u32 c) {
    for (int n = 0; n < 4; n++) {
        i32 x = (i32)(a >> 8 * n & 255), y = (i32)(b >> 8 * n & 255);
        c += (u32)(x > y ? x - y : y - x);
    }
    return c;
}

static inline float fraction(float x) { /* below 1 even where x - floor(x) rounds up to it */
    return isinf(x) ? NAN : min_num(x - floorf(x), 0x1.fffffep-1f);
}
static inline float mantissa_of(float x) {
    int e;
    return isnan(x) || isinf(x) ? x : frexpf(x, &e);
}
static inline i32 exponent_of(float x) {
    int e = 0;
    if (isnan(x) || isinf(x)) return 0;
    frexpf(x, &e);
    return e;
}
static inline double mantissa_of64(double x) {
    int e;
    return isnan(x) || isinf(x) ? x : frexp(x, &e);
}
static inline i32 exponent_of64(double x) {
    int e = 0;
    if (isnan(x) || isinf(x)) return 0;
    frexp(x, &e);
    return e;
}

/* Any function of three bits, given by its truth table. */
static inline u32 bit_function(u32 a, u32 b, u32 c, u32 table) {
    u32 r = 0;
    for (int n = 0; n < 8; n++)
        if (table >> n & 1) r |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
    return r;
}

/* The truth table rides in the modifier fields: abs, neg and omod carry no modifiers then. */
static void bitop3(Wave *w, const Inst *i, bool half) {
    Inst plain = *i;
    u32 table = i->neg | (u32)i->abs << 3 | (u32)i->omod << 6;
    plain.neg = plain.abs = plain.omod = 0;
    plain.simple = !plain.op_sel && !plain.clamp;
    Row ta, tb, tc, d;
    Kind kind = half ? KIND_I16 : KIND_INT;
    const u32 *a = source(w, &plain, 0, kind, ta), *b = source(w, &plain, 1, kind, tb);
    const u32 *c = source(w, &plain, 2, kind, tc);
    EACH_LANE d[l] = bit_function(a[l], b[l], c[l], table);
    if (half) write_result16(w, &plain, d, KIND_I16, true);
    else result(w, &plain, d, KIND_INT);
}
static void exec_v_bitop3_b32(Wave *w, const Inst *i) { bitop3(w, i, false); }
static void exec_v_bitop3_b16(Wave *w, const Inst *i) { bitop3(w, i, true); }

static void exec_v_nop(Wave *w, const Inst *i) { (void)w, (void)i; }

static void exec_v_cndmask_b32(Wave *w, const Inst *i) {
    Row ta, tb, d;
    const u32 *a = source(w, i, 0, KIND_F32, ta), *b = source(w, i, 1, KIND_F32, tb);
    u64 pick = scalar_u64(w, i, i->src[2]);
    EACH_LANE d[l] = pick >> l & 1 ? b[l] : a[l];
    result(w, i, d, KIND_INT);
}

/* ---- lanes to scalars and back ------------------------------------------------------------ */

static const u32 *lane_source(Wave *w, const Inst *i) {
    if (i->src[0] < VGPR0) fault(w, i, "a scalar as the source of lanes is not modelled");
    return i->src[0] >= AGPR0 ? w->v[i->src[0] - AGPR0 + 256] : w->v[i->src[0] - VGPR0];
}
static void exec_v_readfirstlane_b32(Wave *w, const Inst *i) {
    u64 exec = exec_mask(w);
    write_s32(w, i, i->dst, lane_source(w, i)[exec ? __builtin_ctzll(exec) : 0]);
}
static void exec_v_readlane_b32(Wave *w, const Inst *i) {
    write_s32(w, i, i->dst, lane_source(w, i)[scalar_u32(w, i, i->src[1]) & 63]);
}
static void exec_v_writelane_b32(Wave *w, const Inst *i) {
    w->v[i->dst][scalar_u32(w, i, i->src[1]) & 63] = scalar_u32(w, i, i->src[0]);
}
static void exec_v_swap_b32(Wave *w, const Inst *i) {
    Row a, b;
    memcpy(a, lane_source(w, i), sizeof a);
    memcpy(b, w->v[i->dst], sizeof b);
    write_row(w, i->dst, a, exec_mask(w));
    write_row(w, i->src[0] - VGPR0, b, exec_mask(w));
}
/* Of every 2n lanes, the upper n of vdst trade places with the lower n of src0. */
static void swap_lanes(Wave *w, const Inst *i, int n) {
    if (exec_mask(w) != ~0ull) fault(w, i, "a swap with inactive lanes is not modelled");
    u32 *x = w->v[i->dst], *y = w->v[i->src[0] - VGPR0];
    for (int base = 0; base < LANES; base += 2 * n)
        for (int l = base; l < base + n; l++) {
            u32 t = x[l + n];
            x[l + n] = y[l], y[l] = t;
        }
}
static void exec_v_permlane16_swap_b32(Wave *w, const Inst *i) { swap_lanes(w, i, 16); }
static void exec_v_permlane32_swap_b32(Wave *w, const Inst *i) { swap_lanes(w, i, 32); }

static void exec_v_accvgpr_mov_b32(Wave *w, const Inst *i) {
    Row copy;
    memcpy(copy, w->v[i->src[0] - VGPR0 + 256], sizeof copy);
    write_row(w, i->dst + 256u, copy, exec_mask(w));
}

/* Counts the bits of the mask that lie below each lane, in the low or the high half. */
static void exec_v_mbcnt_lo_u32_b32(Wave *w, const Inst *i) {
    Row ta, tb, d;
    const u32 *a = source(w, i, 0, KIND_INT, ta), *b = source(w, i, 1, KIND_INT, tb);
    EACH_LANE d[l] = b[l] + (u32)__builtin_popcount(a[l] & (l < 32 ? (1u << l) - 1 : ~0u));
    result(w, i, d, KIND_INT);
}
static void exec_v_mbcnt_hi_u32_b32(Wave *w, const Inst *i) {
    Row ta, tb, d;
    const u32 *a = source(w, i, 0, KIND_INT, ta), *b = source(w, i, 1, KIND_INT, tb);
    EACH_LANE d[l] = b[l] + (u32)__builtin_popcount(a[l] & (l < 32 ? 0 : (1u << (l - 32)) - 1));
    result(w, i, d, KIND_INT);
}

/* ---- carries ------------------------------------------------------------------------------ */

/* The mask result holds 0 for inactive lanes. */
static void add_sub(Wave *w, const Inst *i, bool subtract, bool reverse, bool carry_in) {
    Row ta, tb, d;
    const u32 *a = source(w, i, 0, KIND_INT, ta), *b = source(w, i, 1, KIND_INT, tb);
    u64 in = carry_in ? scalar_u64(w, i, i->src[2]) : 0, out = 0;
    EACH_LANE {
        u64 x = reverse ? b[l] : a[l], y = reverse ? a[l] : b[l], c = in >> l & 1;
        u64 r = subtract ? x - y - c : x + y + c;
        d[l] = (u32)r;
        out |= (r >> 32 & 1) << l;
    }
    write_s64(w, i, i->sdst, out & exec_mask(w));
    result(w, i, d, KIND_INT);
}
static void exec_v_add_co_u32(Wave *w, const Inst *i) { add_sub(w, i, false, false, false); }
static void exec_v_sub_co_u32(Wave *w, const Inst *i) { add_sub(w, i, true, false, false); }
static void exec_v_subrev_co_u32(Wave *w, const Inst *i) { add_sub(w, i, true, true, false); }
static void exec_v_addc_co_u32(Wave *w, const Inst *i) { add_sub(w, i, false, false, true); }
static void exec_v_subb_co_u32(Wave *w, const Inst *i) { add_sub(w, i, true, false, true); }
static void exec_v_subbrev_co_u32(Wave *w, const Inst *i) { add_sub(w, i, true, true, true); }

static void mad_64(Wave *w, const Inst *i, bool is_signed) {
    Row ta, tb;
    Row64 tc, d;
    const u32 *a = source(w, i, 0, KIND_INT, ta), *b = source(w, i, 1, KIND_INT, tb);
    const u64 *c = source_row64(w, i, 2, false, tc);
    u64 out = 0;
    EACH_LANE {
        u64 product = is_signed ? (u64)((i64)(i32)a[l] * (i32)b[l]) : (u64)a[l] * b[l];
        d[l] = product + c[l];
        out |= (u64)(d[l] < product) << l;
    }
    write_s64(w, i, i->sdst, out & exec_mask(w));
    write_result64(w, i, d, false);
}
static void exec_v_mad_u64_u32(Wave *w, const Inst *i) { mad_64(w, i, false); }
static void exec_v_mad_i64_i32(Wave *w, const Inst *i) { mad_64(w, i, true); }

/* ---- division in four steps --------------------------------------------------------------- */

/* Scales what would over- or underflow on the way. a is the number to scale, b the denominator,
 * c the numerator; the mask says for which lanes v_div_fmas must scale back. The two widths
 * differ in these numbers alone. */
#define DIV_SCALE(name, T, STORE, AS, FROM, SRC, DST, MANTISSA, BIAS2, FAR, LITTLE, SHIFT, LDEXP) \
    static void exec_##name(Wave *w, const Inst *i) {                                             \
        STORE ta[LANES], tb[LANES], tc[LANES], d[LANES];                                          \
        const STORE *a = SRC(0, ta), *b = SRC(1, tb), *c = SRC(2, tc);                            \
        u64 mask = 0;                                                                             \
        EACH_LANE {                                                                               \
            T s0 = AS(a[l]), s1 = AS(b[l]), s2 = AS(c[l]), r = s0;                                \
            int e1 = (int)(b[l] >> MANTISSA & BIAS2), e2 = (int)(c[l] >> MANTISSA & BIAS2);       \
            bool tiny_reciprocal = tiny_##T(1.0 / s1), tiny_quotient = tiny_##T((double)s2 / s1); \
            bool flag = false;                                                                    \
            if (s2 == 0 || s1 == 0) r = (T)NAN;                                                   \
            else if (e2 - e1 >= FAR) {                                                            \
                flag = true;                                                                      \
                if (a[l] == b[l]) r = LDEXP(s0, SHIFT);                                           \
            } else if (e1 == 0) r = LDEXP(s0, SHIFT);                                             \
            else if (tiny_reciprocal && tiny_quotient) {                                          \
                flag = true;                                                                      \
                if (a[l] == b[l]) r = LDEXP(s0, SHIFT);                                           \
            } else if (tiny_reciprocal) r = LDEXP(s0, -SHIFT);                                    \
            else if (tiny_quotient) {                                                             \
                flag = true;                                                                      \
                if (a[l] == c[l]) r = LDEXP(s0, SHIFT);                                           \
            } else if (e2 <= LITTLE) r = LDEXP(s0, SHIFT);                                        \
            d[l] = FROM(r);                                                                       \
            mask |= (u64)flag << l;                                                               \
        }                                                                                         \
        write_s64(w, i, i->sdst, mask &exec_mask(w));                                             \
        DST(d);                                                                                   \
    }
static inline bool tiny_f32(double x) { return x != 0 && fabs(x) < 0x1p-126; }
static inline bool tiny_f64(double x) { return x != 0 && fabs(x) < 0x1p-1022; }
DIV_SCALE(v_div_scale_f32, f32, u32, as_f32, from_f32, SRC_f32, DST_f32, 23, 255, 96, 23, 64,
          ldexpf)
DIV_SCALE(v_div_scale_f64, f64, u64, as_f64, from_f64, SRC_f64, DST_f64, 52, 2047, 768, 53, 128,
          ldexp)

static void exec_v_div_fmas_f32(Wave *w, const Inst *i) {
    Row ta, tb, tc, d;
    const u32 *a = SRC_f32(0, ta), *b = SRC_f32(1, tb), *c = SRC_f32(2, tc);
    u64 mask = pair(w->s + VCC);
    EACH_LANE {
        float r = fmaf(as_f32(a[l]), as_f32(b[l]), as_f32(c[l]));
        if (mask >> l & 1) r = ldexpf(r, (c[l] >> 23 & 255) > 127 ? 64 : -64);
        d[l] = from_f32(r);
    }
    DST_f32(d);
}
static void exec_v_div_fmas_f64(Wave *w, const Inst *i) {
    Row64 ta, tb, tc, d;
    const u64 *a = SRC_f64(0, ta), *b = SRC_f64(1, tb), *c = SRC_f64(2, tc);
    u64 mask = pair(w->s + VCC);
    EACH_LANE {
        double r = fma(as_f64(a[l]), as_f64(b[l]), as_f64(c[l]));
        if (mask >> l & 1) r = ldexp(r, (c[l] >> 52 & 2047) > 1023 ? 128 : -128);
        d[l] = from_f64(r);
    }
    DST_f64(d);
}

/* The special cases of c / b, given a quotient q of ordinary numbers. */
static inline double divided(double q, double b, double c, int exponents_apart, int lowest,
                             bool huge) {
    double sign = signbit(b) != signbit(c) ? -1 : 1;
    if (isnan(c)) return c;
    if (isnan(b)) return b;
    if ((b == 0 && c == 0) || (isinf(b) && isinf(c))) return (double)NAN;
    if (b == 0 || isinf(c)) return sign * (double)INFINITY;
    if (isinf(b) || c == 0) return sign * 0.0;
    if (exponents_apart < lowest) return sign * 0.0;
    if (huge) return sign * (double)INFINITY;
    if (isnan(q)) return sign * (double)INFINITY; /* the steps before overflowed: inf - inf */
    return sign * fabs(q);
}
static void exec_v_div_fixup_f32(Wave *w, const Inst *i) {
    Row ta, tb, tc, d;
    const u32 *q = SRC_f32(0, ta), *b = SRC_f32(1, tb), *c = SRC_f32(2, tc);
    EACH_LANE {
        int eb = (int)(b[l] >> 23 & 255), ec = (int)(c[l] >> 23 & 255);
        d[l] = from_f32(
            (float)divided(as_f32(q[l]), as_f32(b[l]), as_f32(c[l]), ec - eb, -150, eb == 255));
    }
    DST_f32(d);
}
static void exec_v_div_fixup_f64(Wave *w, const Inst *i) {
    Row64 ta, tb, tc, d;
    const u64 *q = SRC_f64(0, ta), *b = SRC_f64(1, tb), *c = SRC_f64(2, tc);
    EACH_LANE {
        int eb = (int)(b[l] >> 52 & 2047), ec = (int)(c[l] >> 52 & 2047);
        d[l] =
            from_f64(divided(as_f64(q[l]), as_f64(b[l]), as_f64(c[l]), ec - eb, -1075, eb == 2047));
    }
    DST_f64(d);
}

/* ---- the lists ---------------------------------------------------------------------------- */

/* clang-format off */
#define OPERAND(T, n, p, room) STORE_##T room[LANES] __attribute__((aligned(64))); \
    const STORE_##T *p = SRC_##T(n, room)
#define V1(base, number, name, TD, TA, ...)                                                  \
    static void exec_##name(Wave *w, const Inst *i) {                                        \
        OPERAND(TA, 0, pa, ta);                                                              \
        STORE_##TD out[LANES] __attribute__((aligned(64)));                                  \
        EACH_LANE { TA a = LOAD_##TA(pa[l]); out[l] = SAVE_##TD(__VA_ARGS__); }              \
        DST_##TD(out);                                                                       \
    }
#define V2(base, number, name, TD, TA, TB, ...)                                              \
    static void exec_##name(Wave *w, const Inst *i) {                                        \
        OPERAND(TA, 0, pa, ta);                                                              \
        OPERAND(TB, 1, pb, tb);                                                              \
        STORE_##TD out[LANES] __attribute__((aligned(64)));                                  \
        EACH_LANE {                                                                          \
            TA a = LOAD_##TA(pa[l]);                                                         \
            TB b = LOAD_##TB(pb[l]);                                                         \
            out[l] = SAVE_##TD(__VA_ARGS__);                                                 \
        }                                                                                    \
        DST_##TD(out);                                                                       \
    }
#define V3(base, number, name, TD, TA, TB, TC, ...)                                          \
    static void exec_##name(Wave *w, const Inst *i) {                                        \
        OPERAND(TA, 0, pa, ta);                                                              \
        OPERAND(TB, 1, pb, tb);                                                              \
        OPERAND(TC, 2, pc, tc);                                                              \
        STORE_##TD out[LANES] __attribute__((aligned(64)));                                  \
        EACH_LANE {                                                                          \
            TA a = LOAD_##TA(pa[l]);                                                         \
            TB b = LOAD_##TB(pb[l]);                                                         \
            TC c = LOAD_##TC(pc[l]);                                                         \
            out[l] = SAVE_##TD(__VA_ARGS__);                                                 \
        }                                                                                    \
        DST_##TD(out);                                                                       \
    }
#define VD(base, number, name, TD, TA, TB, ...) /* `d`: what the destination held */         \
    static void exec_##name(Wave *w, const Inst *i) {                                        \
        OPERAND(TA, 0, pa, ta);                                                              \
        OPERAND(TB, 1, pb, tb);                                                              \
        const u32 *pd = w->v[i->dst];                                                        \
        Row out;                                                                             \
        EACH_LANE {                                                                          \
            TA a = LOAD_##TA(pa[l]);                                                         \
            TB b = LOAD_##TB(pb[l]);                                                         \
            TD d = LOAD_##TD(pd[l]);                                                         \
            out[l] = SAVE_##TD(__VA_ARGS__);                                                 \
        }                                                                                    \
        DST_##TD(out);                                                                       \
    }
#define VX(base, number, name, targets, flags)
#include "vector_ops.h"
#undef V1
#undef V2
#undef V3
#undef VD
#undef VX

#define ROW(num, nm, on, fl) {.encoding = VOP, .class = CLASS_VALU, .targets = on, .flags = fl, \
                              .number = num, .name = #nm, .exec = exec_##nm},
#define V1(base, number, name, ...) ROW(((base) & 0xfff) + number, name, TARGETS(base), 0)
#define V2(base, number, name, ...) ROW(((base) & 0xfff) + number, name, TARGETS(base), 0)
#define V3(base, number, name, ...) ROW(((base) & 0xfff) + number, name, TARGETS(base), 0)
#define VD(base, number, name, ...) ROW(((base) & 0xfff) + number, name, TARGETS(base), 0)
#define VX(base, number, name, targets, flags) ROW(((base) & 0xfff) + number, name, targets, flags)
#define TARGETS(base) ((base) & 0x1000 ? ON_950 : ON_BOTH)
const Op vector_ops[] = {
#include "vector_ops.h"
};
const int num_vector_ops = sizeof vector_ops / sizeof *vector_ops;
