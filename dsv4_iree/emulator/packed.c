/* Packed arithmetic (VOP3P without the matrix instructions): op_sel picks the half that feeds the
 * low result, op_sel_hi the one that feeds the high result, neg and neg_hi negate them. */
#include "operands.h"

typedef struct {
    u32 room[LANES] __attribute__((aligned(64)));
    const u32 *row;
    int n;
} Packed;

static void packed_source(Wave *w, const Inst *i, int n, bool is_float, Packed *p) {
    unsigned r = i->src[n];
    p->n = n;
    if (r >= AGPR0) fault(w, i, "accumulation registers are not operands of packed arithmetic");
    if (r >= VGPR0) {
        p->row = w->v[r - VGPR0];
        return;
    }
    u32 x = is_float ? scalar_f16(w, i, r) : scalar_u32(w, i, r);
    EACH_LANE p->room[l] = x;
    p->row = p->room;
}

/* The half of source `p` that feeds result half `high`, with its sign flipped if asked. */
static inline u32 half_of(const Inst *i, const Packed *p, int l, int high, u32 sign_bit) {
    u32 select = (high ? i->op_sel_hi : i->op_sel) >> p->n & 1;
    u32 flip = (high ? i->neg_hi : i->neg) >> p->n & 1;
    return (p->row[l] >> 16 * select & 0xffff) ^ (flip ? sign_bit : 0);
}

static void no_integer_modifiers(Wave *w, const Inst *i) {
    if (i->neg || i->neg_hi || i->clamp)
        fault(w, i, "modifiers of packed integers are not modelled");
}

static float clamped(const Inst *i, float x) { return !i->clamp ? x : x > 1 ? 1 : x > 0 ? x : 0; }

#define PACKED(name, T, sources, is_float, ...)                                    \
    static void exec_##name(Wave *w, const Inst *i) {                              \
        Packed p[3];                                                               \
        Row d;                                                                     \
        if (!is_float) no_integer_modifiers(w, i);                                 \
        for (int n = 0; n < sources; n++) packed_source(w, i, n, is_float, p + n); \
        if (sources < 3) p[2] = p[1];                                              \
        EACH_LANE {                                                                \
            u32 both = 0;                                                          \
            for (int high = 0; high < 2; high++) {                                 \
                T a = LOAD_##T(half_of(i, p, l, high, 0x8000));                    \
                T b = LOAD_##T(half_of(i, p + 1, l, high, 0x8000));                \
                T c = LOAD_##T(half_of(i, p + 2, l, high, 0x8000));                \
                (void)c;                                                           \
                both |= (SAVE_##T(__VA_ARGS__) & 0xffff) << 16 * high;             \
            }                                                                      \
            d[l] = both;                                                           \
        }                                                                          \
        write_row(w, i->dst, d, exec_mask(w));                                     \
    }
#define SAVE_i16(x) (u32)(u16)(x)
PACKED(v_pk_mad_i16, i16, 3, false, (u32)(a *b) + (u32)c)
PACKED(v_pk_mul_lo_u16, u16, 2, false, (u32)a *b)
PACKED(v_pk_add_i16, i16, 2, false, a + b)
PACKED(v_pk_sub_i16, i16, 2, false, a - b)
PACKED(v_pk_lshlrev_b16, u16, 2, false, b << (a & 15))
PACKED(v_pk_lshrrev_b16, u16, 2, false, b >> (a & 15))
PACKED(v_pk_ashrrev_i16, i16, 2, false, b >> (a & 15))
PACKED(v_pk_max_i16, i16, 2, false, a > b ? a : b)
PACKED(v_pk_min_i16, i16, 2, false, a < b ? a : b)
PACKED(v_pk_mad_u16, u16, 3, false, (u32)a *b + c)
PACKED(v_pk_add_u16, u16, 2, false, a + b)
PACKED(v_pk_sub_u16, u16, 2, false, a - b)
PACKED(v_pk_max_u16, u16, 2, false, a > b ? a : b)
PACKED(v_pk_min_u16, u16, 2, false, a < b ? a : b)
PACKED(v_pk_fma_f16, f16, 3, true, clamped(i, as_f16(from_f16d((f64)a *b + c))))
PACKED(v_pk_add_f16, f16, 2, true, clamped(i, a + b))
PACKED(v_pk_mul_f16, f16, 2, true, clamped(i, a *b))
PACKED(v_pk_min_f16, f16, 2, true, clamped(i, min_num(a, b)))
PACKED(v_pk_max_f16, f16, 2, true, clamped(i, max_num(a, b)))
PACKED(v_pk_minimum3_f16, f16, 3, true, clamped(i, min_ieee(min_ieee(a, b), c)))
PACKED(v_pk_maximum3_f16, f16, 3, true, clamped(i, max_ieee(max_ieee(a, b), c)))

/* Pairs of 32-bit floats: the halves are two registers. A scalar pair is two registers too. */
static void wide_half(Wave *w, const Inst *i, int n, int high, u32 *row) {
    unsigned r = i->src[n];
    u32 select = (high ? i->op_sel_hi : i->op_sel) >> n & 1;
    u32 flip = (high ? i->neg_hi : i->neg) >> n & 1 ? 0x80000000 : 0;
    if (r >= VGPR0) EACH_LANE row[l] = w->v[r - VGPR0 + select][l] ^ flip;
    else {
        if (r >= 128 && select) fault(w, i, "the high half of a constant is not modelled");
        u32 x = scalar_u32(w, i, r < 128 ? r + select : r) ^ flip;
        EACH_LANE row[l] = x;
    }
}
#define PACKED_WIDE(name, sources, ...)                                             \
    static void exec_##name(Wave *w, const Inst *i) {                               \
        Row p[3], d[2];                                                             \
        if (i->clamp) fault(w, i, "clamp of packed 32-bit floats is not modelled"); \
        for (int high = 0; high < 2; high++) {                                      \
            for (int n = 0; n < sources; n++) wide_half(w, i, n, high, p[n]);       \
            EACH_LANE {                                                             \
                f32 a = as_f32(p[0][l]), b = as_f32(p[1][l]);                       \
                f32 c = sources > 2 ? as_f32(p[2][l]) : 0;                          \
                (void)c;                                                            \
                d[high][l] = from_f32(__VA_ARGS__);                                 \
            }                                                                       \
        }                                                                           \
        write_row(w, i->dst, d[0], exec_mask(w));                                   \
        write_row(w, i->dst + 1u, d[1], exec_mask(w));                              \
    }
PACKED_WIDE(v_pk_fma_f32, 3, fmaf(a, b, c))
PACKED_WIDE(v_pk_mul_f32, 2, a *b)
PACKED_WIDE(v_pk_add_f32, 2, a + b)

/* The low result comes from src0, the high one from src1. */
static void exec_v_pk_mov_b32(Wave *w, const Inst *i) {
    Row low, high;
    if (i->neg || i->neg_hi) fault(w, i, "neg of v_pk_mov_b32 is not modelled");
    wide_half(w, i, 0, 0, low);
    wide_half(w, i, 1, 0, high); /* obeys op_sel too, not op_sel_hi */
    write_row(w, i->dst, low, exec_mask(w));
    write_row(w, i->dst + 1u, high, exec_mask(w));
}

/* Mixed precision: op_sel_hi says that a source is a half, op_sel which; neg_hi is abs. */
static float mix_source(Wave *w, const Inst *i, const Packed *p, int l) {
    (void)w;
    u32 x = p->row[l];
    bool half = i->op_sel_hi >> p->n & 1;
    float f = half ? as_f16(x >> (i->op_sel >> p->n & 1 ? 16 : 0)) : as_f32(x);
    if (i->neg_hi >> p->n & 1) f = fabsf(f);
    return i->neg >> p->n & 1 ? -f : f;
}
static void mix(Wave *w, const Inst *i, int to_half) {
    Packed p[3];
    Row d;
    for (int n = 0; n < 3; n++) packed_source(w, i, n, i->op_sel_hi >> n & 1, p + n);
    const u32 *old = w->v[i->dst];
    EACH_LANE {
        float a = mix_source(w, i, p, l), b = mix_source(w, i, p + 1, l),
              c = mix_source(w, i, p + 2, l);
        float r = clamped(i, fmaf(a, b, c));
        d[l] = to_half == 0   ? from_f32(r)
               : to_half == 1 ? (old[l] & 0xffff0000) | from_f16(r)
                              : (old[l] & 0xffff) | from_f16(r) << 16;
    }
    write_row(w, i->dst, d, exec_mask(w));
}
static void exec_v_fma_mix_f32(Wave *w, const Inst *i) { mix(w, i, 0); }
static void exec_v_fma_mixlo_f16(Wave *w, const Inst *i) { mix(w, i, 1); }
static void exec_v_fma_mixhi_f16(Wave *w, const Inst *i) { mix(w, i, 2); }

/* Dot products of the parts of two words, added to src2. */
#define DOT(name, T, parts, bits, CAST, FROM, ACC)                                          \
    static void exec_##name(Wave *w, const Inst *i) {                                       \
        Packed p[3];                                                                        \
        Row d;                                                                              \
        u32 all = parts == 2 ? 7 : 0;                                                       \
        if (i->neg || i->neg_hi || i->clamp || i->op_sel || (all && i->op_sel_hi != all))   \
            fault(w, i, "modifiers of a dot product are not modelled");                     \
        for (int n = 0; n < 3; n++) packed_source(w, i, n, false, p + n);                   \
        EACH_LANE {                                                                         \
            T sum = ACC(p[2].row[l]);                                                       \
            for (int k = 0; k < parts; k++)                                                 \
                sum += (T)CAST(p[0].row[l] >> k * bits) * (T)CAST(p[1].row[l] >> k * bits); \
            d[l] = FROM(sum);                                                               \
        }                                                                                   \
        write_row(w, i->dst, d, exec_mask(w));                                              \
    }
#define AS_I8(x)   (i8)(u8)(x)
#define AS_U8(x)   (u8)(x)
#define AS_I16(x)  (i16)(u16)(x)
#define AS_U16(x)  (u16)(x)
#define AS_U32(x)  (u32)(x)
#define AS_BF16(x) as_bf16((x) & 0xffff)
DOT(v_dot2_f32_f16, f32, 2, 16, as_f16, from_f32, as_f32)
DOT(v_dot2_f32_bf16, f32, 2, 16, AS_BF16, from_f32, as_f32)
DOT(v_dot2_i32_i16, u32, 2, 16, AS_I16, AS_U32, AS_U32)
DOT(v_dot2_u32_u16, u32, 2, 16, AS_U16, AS_U32, AS_U32)
DOT(v_dot4_i32_i8, u32, 4, 8, AS_I8, AS_U32, AS_U32)
DOT(v_dot4_u32_u8, u32, 4, 8, AS_U8, AS_U32, AS_U32)

static void exec_v_accvgpr_read_b32(Wave *w, const Inst *i) {
    Row copy;
    memcpy(copy, w->v[i->src[0] - VGPR0 + 256], sizeof copy);
    write_row(w, i->dst, copy, exec_mask(w));
}
static void exec_v_accvgpr_write_b32(Wave *w, const Inst *i) {
    Packed p;
    packed_source(w, i, 0, false, &p);
    Row copy;
    memcpy(copy, p.row, sizeof copy);
    write_row(w, i->dst + 256u, copy, exec_mask(w));
}

/* clang-format off */
#define ROW(num, nm, on) {.encoding = VOP3P, .class = CLASS_VALU, .targets = on, .number = num, \
                          .name = #nm, .exec = exec_##nm},
const Op packed_ops[] = {
    ROW(0, v_pk_mad_i16, ON_BOTH) ROW(1, v_pk_mul_lo_u16, ON_BOTH) ROW(2, v_pk_add_i16, ON_BOTH)
    ROW(3, v_pk_sub_i16, ON_BOTH) ROW(4, v_pk_lshlrev_b16, ON_BOTH)
    ROW(5, v_pk_lshrrev_b16, ON_BOTH) ROW(6, v_pk_ashrrev_i16, ON_BOTH)
    ROW(7, v_pk_max_i16, ON_BOTH) ROW(8, v_pk_min_i16, ON_BOTH) ROW(9, v_pk_mad_u16, ON_BOTH)
    ROW(10, v_pk_add_u16, ON_BOTH) ROW(11, v_pk_sub_u16, ON_BOTH) ROW(12, v_pk_max_u16, ON_BOTH)
    ROW(13, v_pk_min_u16, ON_BOTH) ROW(14, v_pk_fma_f16, ON_BOTH) ROW(15, v_pk_add_f16, ON_BOTH)
    ROW(16, v_pk_mul_f16, ON_BOTH) ROW(17, v_pk_min_f16, ON_BOTH) ROW(18, v_pk_max_f16, ON_BOTH)
    ROW(26, v_dot2_f32_bf16, ON_950) ROW(27, v_pk_minimum3_f16, ON_950)
    ROW(28, v_pk_maximum3_f16, ON_950) ROW(32, v_fma_mix_f32, ON_BOTH)
    ROW(33, v_fma_mixlo_f16, ON_BOTH) ROW(34, v_fma_mixhi_f16, ON_BOTH)
    ROW(35, v_dot2_f32_f16, ON_BOTH) ROW(38, v_dot2_i32_i16, ON_BOTH)
    ROW(39, v_dot2_u32_u16, ON_BOTH) ROW(40, v_dot4_i32_i8, ON_BOTH)
    ROW(41, v_dot4_u32_u8, ON_BOTH) ROW(48, v_pk_fma_f32, ON_BOTH)
    ROW(49, v_pk_mul_f32, ON_BOTH) ROW(50, v_pk_add_f32, ON_BOTH) ROW(51, v_pk_mov_b32, ON_BOTH)
    ROW(88, v_accvgpr_read_b32, ON_BOTH) ROW(89, v_accvgpr_write_b32, ON_BOTH)
};
const int num_packed_ops = sizeof packed_ops / sizeof *packed_ops;
