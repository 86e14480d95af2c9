/* Vector compares: a mask with one bit per lane, 0 for inactive lanes; cmpx also becomes EXEC. */
#include "operands.h"

static void write_mask(Wave *w, const Inst *i, u64 mask, bool to_exec) {
    if (i->dpp) fault(w, i, "DPP on a compare is not modelled");
    if (i->clamp || i->omod) fault(w, i, "output modifier on a compare is not modelled");
    mask &= exec_mask(w);
    write_s64(w, i, i->sdst, mask);
    if (to_exec) set_pair(w->s + EXEC, mask);
}

/* clang-format off */
/* The order of the float predicates is that of their numbers. */
#define FLOAT_PREDICATES(X, T, first, firstx)                     \
    X(T, first + 0, firstx + 0, f, 0)                             \
    X(T, first + 1, firstx + 1, lt, a < b)                        \
    X(T, first + 2, firstx + 2, eq, a == b)                       \
    X(T, first + 3, firstx + 3, le, a <= b)                       \
    X(T, first + 4, firstx + 4, gt, a > b)                        \
    X(T, first + 5, firstx + 5, lg, a < b || a > b)               \
    X(T, first + 6, firstx + 6, ge, a >= b)                       \
    X(T, first + 7, firstx + 7, o, a == a && b == b)              \
    X(T, first + 8, firstx + 8, u, a != a || b != b)              \
    X(T, first + 9, firstx + 9, nge, !(a >= b))                   \
    X(T, first + 10, firstx + 10, nlg, !(a < b || a > b))         \
    X(T, first + 11, firstx + 11, ngt, !(a > b))                  \
    X(T, first + 12, firstx + 12, nle, !(a <= b))                 \
    X(T, first + 13, firstx + 13, neq, !(a == b))                 \
    X(T, first + 14, firstx + 14, nlt, !(a < b))                  \
    X(T, first + 15, firstx + 15, tru, 1)

#define INTEGER_PREDICATES(X, T, first, firstx)                   \
    X(T, first + 0, firstx + 0, f, 0)                             \
    X(T, first + 1, firstx + 1, lt, a < b)                        \
    X(T, first + 2, firstx + 2, eq, a == b)                       \
    X(T, first + 3, firstx + 3, le, a <= b)                       \
    X(T, first + 4, firstx + 4, gt, a > b)                        \
    X(T, first + 5, firstx + 5, ne, a != b)                       \
    X(T, first + 6, firstx + 6, ge, a >= b)                       \
    X(T, first + 7, firstx + 7, t, 1)

#define ALL_COMPARES(X)                                           \
    FLOAT_PREDICATES(X, f16, 32, 48)                              \
    FLOAT_PREDICATES(X, f32, 64, 80)                              \
    FLOAT_PREDICATES(X, f64, 96, 112)                             \
    INTEGER_PREDICATES(X, i16, 160, 176)                          \
    INTEGER_PREDICATES(X, u16, 168, 184)                          \
    INTEGER_PREDICATES(X, i32, 192, 208)                          \
    INTEGER_PREDICATES(X, u32, 200, 216)                          \
    INTEGER_PREDICATES(X, i64, 224, 240)                          \
    INTEGER_PREDICATES(X, u64, 232, 248)

static inline u64 gathered(const u8 *bits) {
    u64 mask = 0;
    EACH_LANE mask |= (u64)bits[l] << l;
    return mask;
}

#define DEFINE(T, number, numberx, predicate, ...)                                           \
    static u64 compare_##predicate##_##T(Wave *w, const Inst *i) {                           \
        STORE_##T ta[LANES] __attribute__((aligned(64))), tb[LANES] __attribute__((aligned(64))); \
        const STORE_##T *pa = SRC_##T(0, ta), *pb = SRC_##T(1, tb);                          \
        u8 bits[LANES] __attribute__((aligned(64)));                                         \
        EACH_LANE {                                                                          \
            T a = LOAD_##T(pa[l]), b = LOAD_##T(pb[l]);                                      \
            (void)a, (void)b;                                                                \
            bits[l] = (__VA_ARGS__) != 0;                                                    \
        }                                                                                    \
        return gathered(bits);                                                               \
    }                                                                                        \
    static void exec_v_cmp_##predicate##_##T(Wave *w, const Inst *i) {                       \
        write_mask(w, i, compare_##predicate##_##T(w, i), false);                            \
    }                                                                                        \
    static void exec_v_cmpx_##predicate##_##T(Wave *w, const Inst *i) {                      \
        write_mask(w, i, compare_##predicate##_##T(w, i), true);                             \
    }
ALL_COMPARES(DEFINE)

/* The classes of a float, one bit each: signalling NaN, quiet NaN, then from -infinity upwards. */
static u32 class_of(u64 bits, int mantissa_bits, int exponent_bits) {
    u64 mantissa = bits & ((1ull << mantissa_bits) - 1);
    u64 exponent = bits >> mantissa_bits & ((1ull << exponent_bits) - 1);
    bool negative = bits >> (mantissa_bits + exponent_bits) & 1;
    if (exponent == (1ull << exponent_bits) - 1) {
        if (mantissa) return mantissa >> (mantissa_bits - 1) ? 1u << 1 : 1u << 0;
        return negative ? 1u << 2 : 1u << 9;
    }
    if (exponent) return negative ? 1u << 3 : 1u << 8;
    if (mantissa) return negative ? 1u << 4 : 1u << 7;
    return negative ? 1u << 5 : 1u << 6;
}

#define DEFINE_CLASS(T, mantissa_bits, exponent_bits)                                        \
    static u64 class_##T(Wave *w, const Inst *i) {                                           \
        STORE_##T ta[LANES] __attribute__((aligned(64)));                                    \
        Row tb;                                                                              \
        const STORE_##T *a = SRC_##T(0, ta);                                                 \
        const u32 *wanted = SRC_u32(1, tb);                                                  \
        u64 mask = 0;                                                                        \
        EACH_LANE {                                                                          \
            u32 class = class_of(a[l], mantissa_bits, exponent_bits);                        \
            mask |= (u64)((class & wanted[l]) != 0) << l;                                    \
        }                                                                                    \
        return mask;                                                                         \
    }                                                                                        \
    static void exec_v_cmp_class_##T(Wave *w, const Inst *i) {                               \
        write_mask(w, i, class_##T(w, i), false);                                            \
    }                                                                                        \
    static void exec_v_cmpx_class_##T(Wave *w, const Inst *i) {                              \
        write_mask(w, i, class_##T(w, i), true);                                             \
    }
DEFINE_CLASS(f32, 23, 8)
DEFINE_CLASS(f64, 52, 11)

#define ROW(num, nm) {.encoding = VOP, .class = CLASS_VALU, .targets = ON_BOTH, .flags = HAS_SDST, \
                      .number = num, .name = #nm, .exec = exec_##nm},
#define LIST(T, number, numberx, predicate, ...) \
    ROW(number, v_cmp_##predicate##_##T) ROW(numberx, v_cmpx_##predicate##_##T)
const Op compare_ops[] = {
    ROW(16, v_cmp_class_f32) ROW(17, v_cmpx_class_f32)
    ROW(18, v_cmp_class_f64) ROW(19, v_cmpx_class_f64)
    ALL_COMPARES(LIST)
};
const int num_compare_ops = sizeof compare_ops / sizeof *compare_ops;
