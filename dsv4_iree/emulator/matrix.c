/* Matrix instructions.
 *
 * A lane holds one row of A (or column of B) and a run of consecutive k, so the 16 or 32 lanes of
 * one group are, element by element, one k-slice of the operand: unpacking is a copy of lanes.
 * The result is kept likewise: a register holds, per group of lanes, one row of D. So rows are
 * vectors throughout and nothing is transposed.
 *
 * EXEC does not matter: all lanes take part.
 *
 * Products and sums are float fused multiply-adds in the order of k. The hardware's order and
 * intermediate width are not published; results agree to rounding, not bit for bit. */
#include "operands.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif
#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum { MAX_MN = 32, MAX_K = 128 };
typedef float Slices[MAX_K][MAX_MN] __attribute__((aligned(64)));
typedef float Accumulator[MAX_MN][MAX_MN] __attribute__((aligned(64)));

/* Flush subnormal floats to zero, as the MODE register may ask of the vector unit. */
void set_flush(bool on) {
#ifdef __SSE__
    enum { FTZ = 0x8000, DAZ = 0x0040 };
    unsigned csr = _mm_getcsr(), wanted = on ? csr | FTZ | DAZ : csr & ~(unsigned)(FTZ | DAZ);
    if (csr != wanted) _mm_setcsr(wanted);
#else
    (void)on;
#endif
}

/* ---- unpacking ---------------------------------------------------------------------------- */

typedef enum { E_F32, E_F16, E_BF16, E_I8, E_FP8, E_BF8, E_FP8Z, E_BF8Z } Element;

static inline int bits_of(Element e) {
    return e == E_F32 ? 32 : e == E_F16 || e == E_BF16 ? 16 : 8;
}

static inline float element(u32 word, int shift, Element e) {
    switch (e) {
    case E_F32: return as_f32(word);
    case E_F16: return as_f16(word >> shift & 0xffff);
    case E_BF16: return as_bf16(word >> shift);
    case E_I8: return (float)(i8)(word >> shift);
    case E_FP8: return small_to_f32(word >> shift & 255, formats[FP8]);
    case E_BF8: return small_to_f32(word >> shift & 255, formats[BF8]);
    case E_FP8Z: return small_to_f32(word >> shift & 255, formats[FP8_FNUZ]);
    case E_BF8Z: return small_to_f32(word >> shift & 255, formats[BF8_FNUZ]);
    }
    return 0;
}

/* The first row of registers that operand n starts at. */
static unsigned first_row(Wave *w, const Inst *i, int n) {
    unsigned r = i->src[n];
    if (r < VGPR0) fault(w, i, "a scalar as a matrix is not modelled");
    return r >= AGPR0 ? r - AGPR0 + 256 : r - VGPR0;
}

static inline __attribute__((always_inline)) void unpack(const Row *v, int mn, int k, Element e,
                                                         Slices out) {
    int groups = LANES / mn, run = k / groups, per_word = 32 / bits_of(e);
    for (int g = 0; g < groups; g++)
        for (int n = 0; n < run; n++) {
            const u32 *lanes = v[n / per_word] + g * mn;
            int shift = n % per_word * bits_of(e);
            float *to = out[g * run + n];
            for (int m = 0; m < mn; m++) to[m] = element(lanes[m], shift, e);
        }
}

/* ---- multiplying -------------------------------------------------------------------------- */

typedef float Sixteen __attribute__((vector_size(64)));

static inline Sixteen multiply_add(float a, Sixteen b, Sixteen c) {
#ifdef __AVX512F__
    return (Sixteen)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)c);
#else
    for (int n = 0; n < 16; n++) c[n] = fmaf(a, b[n], c[n]);
    return c;
#endif
}

/* d[m][n] += sum over k of a[k][m] * b[k][n], eight rows by sixteen columns at a time. */
static inline __attribute__((always_inline)) void multiply(int mn, int k_from, int k_to, Slices a,
                                                           Slices b, Accumulator d) {
    for (int m = 0; m < mn; m += 8)
        for (int n = 0; n < mn; n += 16) {
            Sixteen sum[8];
            for (int r = 0; r < 8; r++) sum[r] = *(Sixteen *)&d[m + r][n];
            for (int k = k_from; k < k_to; k++) {
                Sixteen row = *(Sixteen *)&b[k][n];
                for (int r = 0; r < 8; r++) sum[r] = multiply_add(a[k][m + r], row, sum[r]);
            }
            for (int r = 0; r < 8; r++) *(Sixteen *)&d[m + r][n] = sum[r];
        }
}

/* Row m of the result: the register and the first of its lanes. */
static inline u32 *result_row(Row *v, int mn, int m) {
    return mn == 16 ? v[m % 4] + 16 * (m / 4) : v[m / 8 * 4 + m % 4] + 32 * (m / 4 % 2);
}

static void load_accumulator(Wave *w, const Inst *i, int mn, Accumulator d) {
    if (i->src[2] >= VGPR0) {
        Row *v = w->v + first_row(w, i, 2);
        for (int m = 0; m < mn; m++) memcpy(d[m], result_row(v, mn, m), 4 * (size_t)mn);
    } else {
        float c = as_f32(scalar_u32(w, i, i->src[2]));
        for (int m = 0; m < mn; m++)
            for (int n = 0; n < mn; n++) d[m][n] = c;
    }
}

static void store_accumulator(Wave *w, const Inst *i, int mn, Accumulator d) {
    Row *v = w->v + i->dst;
    for (int m = 0; m < mn; m++) memcpy(result_row(v, mn, m), d[m], 4 * (size_t)mn);
}

static void check_modifiers(Wave *w, const Inst *i) {
    if (i->literal) fault(w, i, "cbsz, abid and blgp of this instruction are not modelled");
}

static inline __attribute__((always_inline)) void mfma(Wave *w, const Inst *i, int mn, int k,
                                                       Element ea, Element eb) {
    Slices a, b;
    Accumulator d;
    check_modifiers(w, i);
    set_flush(false);
    unpack(w->v + first_row(w, i, 0), mn, k, ea, a);
    unpack(w->v + first_row(w, i, 1), mn, k, eb, b);
    load_accumulator(w, i, mn, d);
    multiply(mn, 0, k, a, b, d);
    store_accumulator(w, i, mn, d);
    enter_mode(w);
}

/* Bytes: their products and sums are small enough to be exact in floats (k * 2^14 < 2^24); the
 * accumulator is added as integers, which wrap. */
static inline __attribute__((always_inline)) void mfma_i8(Wave *w, const Inst *i, int mn, int k) {
    Slices a, b;
    Accumulator d, c;
    check_modifiers(w, i);
    unpack(w->v + first_row(w, i, 0), mn, k, E_I8, a);
    unpack(w->v + first_row(w, i, 1), mn, k, E_I8, b);
    memset(d, 0, sizeof d);
    load_accumulator(w, i, mn, c);
    multiply(mn, 0, k, a, b, d);
    for (int m = 0; m < mn; m++)
        for (int n = 0; n < mn; n++) c[m][n] = as_f32(from_f32(c[m][n]) + (u32)(i32)d[m][n]);
    store_accumulator(w, i, mn, c);
}

/* ---- f8f6f4: formats chosen by the instruction, optional scales --------------------------- */

/* Element n of lanes from..from + mn - 1, packed without gaps. Codes of 4 bits go through a table
 * of their values where the processor can look up sixteen at once. */
static inline __attribute__((always_inline)) void
convert_lanes(const Row *v, int n, int from, int mn, Format f, const float *table, float *to) {
    int bits = 1 + f.exponent_bits + f.mantissa_bits, word = n * bits / 32, shift = n * bits % 32;
    u32 mask = (1u << bits) - 1;
    const u32 *low = v[word] + from, *high = v[word + 1] + from;
#ifdef __AVX512F__
    for (int m = 0; bits == 4 && m < mn; m += 16) {
        __m512i codes = _mm512_srli_epi32(_mm512_loadu_si512(low + m), (unsigned)shift);
        _mm512_storeu_ps(to + m, _mm512_permutexvar_ps(codes, _mm512_load_ps(table)));
    }
    if (bits == 4) return;
#else
    (void)table;
#endif
    if (shift + bits <= 32)
        for (int m = 0; m < mn; m++) to[m] = small_to_f32(low[m] >> shift & mask, f);
    else
        for (int m = 0; m < mn; m++)
            to[m] = small_to_f32((low[m] >> shift | high[m] << (32 - shift)) & mask, f);
}

/* Each lane holds 32 elements. Formats of 4 and 6 bits: consecutive k. Of 8 bits: two runs of 16,
 * the second half of k behind the first half of all lanes. */
static inline __attribute__((always_inline)) void unpack_small(const Row *v, int mn, int k,
                                                               FormatName name, Slices out) {
    Format f = formats[name];
    int bits = 1 + f.exponent_bits + f.mantissa_bits, groups = LANES / mn;
    float table[16] __attribute__((aligned(64)));
    for (u32 code = 0; code < 16; code++) table[code] = small_to_f32(code, f);
    for (int g = 0; g < groups; g++)
        for (int n = 0; n < 32; n++) {
            int at = bits < 8 ? 32 * g + n : n < 16 ? 16 * g + n : k / 2 + 16 * g + n - 16;
            convert_lanes(v, n, g * mn, mn, f, table, out[at]);
        }
}

static void unpack_format(Wave *w, const Inst *i, int n, int mn, int k, unsigned format,
                          Slices out) {
    const Row *v = w->v + first_row(w, i, n);
    switch (format) {
    case FP8: unpack_small(v, mn, k, FP8, out); break;
    case BF8: unpack_small(v, mn, k, BF8, out); break;
    case FP6: unpack_small(v, mn, k, FP6, out); break;
    case BF6: unpack_small(v, mn, k, BF6, out); break;
    case FP4: unpack_small(v, mn, k, FP4, out); break;
    default: fault(w, i, "format %u of f8f6f4 is not modelled", format);
    }
}

/* One e8m0 scale per row and 32 consecutive k: a byte of lane row + mn * (k / 32). */
static void load_scales(Wave *w, const Inst *i, unsigned operand, unsigned byte, i32 *scales) {
    if (operand >= AGPR0) fault(w, i, "a scale in an accumulation register is not modelled");
    u32 constant = operand < VGPR0 ? scalar_u32(w, i, operand) : 0;
    EACH_LANE {
        u32 x = operand < VGPR0 ? constant : w->v[operand - VGPR0][l];
        scales[l] = (i32)(x >> 8 * byte & 255);
    }
}

/* d += p * 2^exponent, in two factors so that neither leaves the range of a float. */
static inline float add_scaled(float d, float p, i32 sa, i32 sb) {
    i32 exponent = sa + sb - 254, half = exponent >> 1;
    float f = as_f32((u32)(half + 127) << 23), g = as_f32((u32)(exponent - half + 127) << 23);
    float r = d + p * f * g;
    return sa == 255 || sb == 255 ? NAN : r;
}

/* One group of 32 products for every row and column: p = a b. */
static inline __attribute__((always_inline)) void multiply_group(int mn, int group, Slices a,
                                                                 Slices b, Accumulator p) {
    for (int m = 0; m < mn; m++) memset(p[m], 0, 4 * (size_t)mn);
    multiply(mn, 32 * group, 32 * group + 32, a, b, p);
}

#if defined __AVX512VNNI__ && defined __AVX512BW__
#define HAS_CODE_DOT 1
/* Four of the eight 4-bit codes in each word, one to a byte, through a table of sixteen bytes. */
static inline __m512i codes_to_bytes(__m512i words, unsigned quad, __m512i table) {
    __m512i x = _mm512_and_si512(_mm512_srli_epi32(words, 16 * quad), _mm512_set1_epi32(0xffff));
    x = _mm512_and_si512(_mm512_or_si512(x, _mm512_slli_epi32(x, 8)), _mm512_set1_epi32(0xff00ff));
    x = _mm512_or_si512(x, _mm512_slli_epi32(x, 4));
    return _mm512_shuffle_epi8(table, _mm512_and_si512(x, _mm512_set1_epi32(0x0f0f0f0f)));
}

/* `multiply_group` for e2m1 in both operands, straight from the registers and exact: doubled codes
 * are integers up to 12, and b's are raised by 12 since one factor has to be unsigned. */
static inline __attribute__((always_inline)) void multiply_codes(int mn, int group, const Row *a,
                                                                 const Row *b, Accumulator p) {
    const __m512i doubled = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    const __m512i twelve = _mm512_set1_epi8(12), raised = _mm512_add_epi8(doubled, twelve);
    for (int mb = 0; mb < mn; mb += 16)
        for (int nb = 0; nb < mn; nb += 16) {
            __m512i columns[8], excess = _mm512_setzero_si512();
            i32 rows[8][16] __attribute__((aligned(64))), start[16] __attribute__((aligned(64)));
            for (unsigned q = 0; q < 8; q++) {
                __m512i wa = _mm512_loadu_si512(a[q / 2] + group * mn + mb);
                __m512i wb = _mm512_loadu_si512(b[q / 2] + group * mn + nb);
                __m512i row = codes_to_bytes(wa, q % 2, doubled);
                columns[q] = codes_to_bytes(wb, q % 2, raised);
                excess = _mm512_dpbusd_epi32(excess, twelve, row);
                _mm512_store_si512(rows[q], row);
            }
            _mm512_store_si512(start, _mm512_sub_epi32(_mm512_setzero_si512(), excess));
            for (int m = 0; m < 16; m++) {
                __m512i sum = _mm512_set1_epi32(start[m]);
                for (int q = 0; q < 8; q++)
                    sum = _mm512_dpbusd_epi32(sum, columns[q], _mm512_set1_epi32(rows[q][m]));
                __m512 quarter = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(0.25f));
                _mm512_store_ps(&p[mb + m][nb], quarter);
            }
        }
}
#else
#define HAS_CODE_DOT 0
static inline void multiply_codes(int mn, int group, const Row *a, const Row *b, Accumulator p) {
    (void)mn, (void)group, (void)a, (void)b, (void)p;
}
#endif

static inline __attribute__((always_inline)) void mfma_small(Wave *w, const Inst *i, int mn, int k,
                                                             bool scaled) {
    Slices a, b;
    Accumulator d, p;
    i32 sa[LANES] = {0}, sb[LANES] = {0};
    unsigned format_a = i->literal & 7, format_b = i->literal >> 8 & 7;
    bool codes = HAS_CODE_DOT && format_a == FP4 && format_b == FP4;
    if (i->literal & 0xf0) fault(w, i, "abid of this instruction is not modelled");
    w->group->counts->wide_f8f6f4 += format_a <= BF8 || format_b <= BF8;
    set_flush(false);
    if (!codes) {
        unpack_format(w, i, 0, mn, k, format_a, a);
        unpack_format(w, i, 1, mn, k, format_b, b);
    }
    load_accumulator(w, i, mn, d);
    if (scaled) {
        load_scales(w, i, i->saddr, i->sel[0], sa);
        load_scales(w, i, i->vaddr, i->sel[1], sb);
    }
    for (int group = 0; group < k / 32; group++) {
        const i32 *row_scales = sa + mn * group, *column_scales = sb + mn * group;
        if (codes)
            multiply_codes(mn, group, w->v + first_row(w, i, 0), w->v + first_row(w, i, 1), p);
        else multiply_group(mn, group, a, b, p);
        for (int m = 0; m < mn; m++)
            for (int n = 0; n < mn; n++)
                if (scaled) d[m][n] = add_scaled(d[m][n], p[m][n], row_scales[m], column_scales[n]);
                else d[m][n] += p[m][n];
    }
    store_accumulator(w, i, mn, d);
    enter_mode(w);
}

/* ---- the list ----------------------------------------------------------------------------- */

/* clang-format off */
#define MATRICES(M, I, F, Z)                                          \
    M(69, v_mfma_f32_16x16x4_f32, ON_BOTH, 16, 4, E_F32)              \
    M(68, v_mfma_f32_32x32x2_f32, ON_BOTH, 32, 2, E_F32)              \
    M(77, v_mfma_f32_16x16x16_f16, ON_BOTH, 16, 16, E_F16)            \
    M(76, v_mfma_f32_32x32x8_f16, ON_BOTH, 32, 8, E_F16)              \
    M(84, v_mfma_f32_16x16x32_f16, ON_950, 16, 32, E_F16)             \
    M(85, v_mfma_f32_32x32x16_f16, ON_950, 32, 16, E_F16)             \
    M(97, v_mfma_f32_16x16x16_bf16, ON_BOTH, 16, 16, E_BF16)          \
    M(96, v_mfma_f32_32x32x8_bf16, ON_BOTH, 32, 8, E_BF16)            \
    M(53, v_mfma_f32_16x16x32_bf16, ON_950, 16, 32, E_BF16)           \
    M(55, v_mfma_f32_32x32x16_bf16, ON_950, 32, 16, E_BF16)           \
    I(87, v_mfma_i32_16x16x32_i8, ON_BOTH, 16, 32)                    \
    I(86, v_mfma_i32_32x32x16_i8, ON_BOTH, 32, 16)                    \
    I(54, v_mfma_i32_16x16x64_i8, ON_950, 16, 64)                     \
    I(56, v_mfma_i32_32x32x32_i8, ON_950, 32, 32)                     \
    F(112, v_mfma_f32_16x16x32_bf8_bf8, 16, 32, E_BF8, E_BF8)         \
    F(113, v_mfma_f32_16x16x32_bf8_fp8, 16, 32, E_BF8, E_FP8)         \
    F(114, v_mfma_f32_16x16x32_fp8_bf8, 16, 32, E_FP8, E_BF8)         \
    F(115, v_mfma_f32_16x16x32_fp8_fp8, 16, 32, E_FP8, E_FP8)         \
    F(116, v_mfma_f32_32x32x16_bf8_bf8, 32, 16, E_BF8, E_BF8)         \
    F(117, v_mfma_f32_32x32x16_bf8_fp8, 32, 16, E_BF8, E_FP8)         \
    F(118, v_mfma_f32_32x32x16_fp8_bf8, 32, 16, E_FP8, E_BF8)         \
    F(119, v_mfma_f32_32x32x16_fp8_fp8, 32, 16, E_FP8, E_FP8)         \
    Z(VOP3P, 45, v_mfma_f32_16x16x128_f8f6f4, 16, 128, false)         \
    Z(VOP3P, 46, v_mfma_f32_32x32x64_f8f6f4, 32, 64, false)           \
    Z(VOP3PX, 45, v_mfma_scale_f32_16x16x128_f8f6f4, 16, 128, true)   \
    Z(VOP3PX, 46, v_mfma_scale_f32_32x32x64_f8f6f4, 32, 64, true)

#define DEFINE_M(number, name, targets, mn, k, e) \
    static void exec_##name(Wave *w, const Inst *i) { mfma(w, i, mn, k, e, e); }
#define DEFINE_I(number, name, targets, mn, k) \
    static void exec_##name(Wave *w, const Inst *i) { mfma_i8(w, i, mn, k); }
/* gfx942 reads the FNUZ kind of these formats, gfx950 the OCP kind. */
#define DEFINE_F(number, name, mn, k, ea, eb)                                          \
    static void exec_##name(Wave *w, const Inst *i) {                                  \
        if (w->group->module->target == GFX942) mfma(w, i, mn, k, ea##Z, eb##Z);       \
        else mfma(w, i, mn, k, ea, eb);                                                \
    }
#define DEFINE_Z(encoding, number, name, mn, k, scaled) \
    static void exec_##name(Wave *w, const Inst *i) { mfma_small(w, i, mn, k, scaled); }
MATRICES(DEFINE_M, DEFINE_I, DEFINE_F, DEFINE_Z)

#define ROW(enc, num, nm, on) {.encoding = enc, .class = CLASS_MFMA, .targets = on, .number = num, \
                               .name = #nm, .exec = exec_##nm},
#define ROW_M(number, name, targets, mn, k, e) ROW(VOP3P, number, name, targets)
#define ROW_I(number, name, targets, mn, k) ROW(VOP3P, number, name, targets)
#define ROW_F(number, name, mn, k, ea, eb) ROW(VOP3P, number, name, ON_BOTH)
#define ROW_Z(encoding, number, name, mn, k, scaled) ROW(encoding, number, name, ON_950)
const Op matrix_ops[] = { MATRICES(ROW_M, ROW_I, ROW_F, ROW_Z) };
const int num_matrix_ops = sizeof matrix_ops / sizeof *matrix_ops;
