/* Scalar operands, the scalar arithmetic unit, branches, and the MODE register. */
#include "numeric.h"

static const float inline_floats[] = {.5f, -.5f, 1, -1, 2, -2, 4, -4, 0.15915494f};

/* The apertures through which flat addresses reach LDS and scratch: above every host address. */
enum { SHARED_HIGH = 0x00010000, PRIVATE_HIGH = 0x00020000 };

u32 scalar_u32(Wave *w, const Inst *i, unsigned r) {
    if (r < 128) return w->s[r];
    if (r <= 192) return r - 128;
    if (r <= 208) return 192 - r;
    if (r >= 240 && r <= 248) return from_f32(inline_floats[r - 240]);
    switch (r) {
    case 235:
    case 236:
    case 237:
    case 238: return 0; /* low words of the apertures */
    case 251: return !pair(w->s + VCC);
    case 252: return !exec_mask(w);
    case 253: return w->scc;
    case LITERAL: return i->literal;
    }
    fault(w, i, "operand %u is not modelled", r);
}

u64 scalar_u64(Wave *w, const Inst *i, unsigned r) {
    if (r < 127) return pair(w->s + r);
    switch (r) {
    case 235: return (u64)SHARED_HIGH << 32;
    case 236: return (u64)SHARED_HIGH << 32 | 0xffffffff;
    case 237: return (u64)PRIVATE_HIGH << 32;
    case 238: return (u64)PRIVATE_HIGH << 32 | 0xffffffff;
    }
    if (r >= 240 && r <= 248) return scalar_f64(w, i, r);
    if (r == LITERAL) return i->literal;       /* 64-bit patterns and unsigned: zero-extended */
    return (u64)(i64)(i32)scalar_u32(w, i, r); /* inline constants: sign-extended */
}

u64 scalar_f64(Wave *w, const Inst *i, unsigned r) {
    if (r == 248) return from_f64(0.15915494309189532);
    if (r >= 240 && r < 248) return from_f64((double)inline_floats[r - 240]);
    if (r == LITERAL) return (u64)i->literal << 32;
    if (r >= 128 && r <= 208) return (u64)(i64)(i32)scalar_u32(w, i, r);
    return scalar_u64(w, i, r);
}

u32 scalar_f16(Wave *w, const Inst *i, unsigned r) {
    if (r >= 240 && r <= 248) return from_f16(inline_floats[r - 240]);
    return scalar_u32(w, i, r);
}

void write_s32(Wave *w, const Inst *i, unsigned reg, u32 x) {
    if (reg >= 128 || reg == 125) fault(w, i, "cannot write scalar operand %u", reg);
    w->s[reg] = x;
}

void write_s64(Wave *w, const Inst *i, unsigned reg, u64 x) {
    if (reg >= 127) fault(w, i, "cannot write scalar operand pair %u", reg);
    set_pair(w->s + reg, x);
}

static u64 field(u64 x, u32 offset, u32 width, u32 bits, bool is_signed) {
    if (!width) return 0;
    if (is_signed && bits == 32) x = (u64)(i64)(i32)x;
    if (is_signed) x = (u64)((i64)x >> offset);
    else x >>= offset;
    if (width >= 64) return x;
    u64 low = x & ((1ull << width) - 1);
    return is_signed && low >> (width - 1) ? low | ~0ull << width : low;
}

static u64 reversed(u64 x) {
    u64 r = 0;
    for (int bit = 0; bit < 64; bit++) r |= (x >> bit & 1) << (63 - bit);
    return r;
}

/* How many top bits equal the sign bit's run; -1 when all do. */
static u32 sign_run(u64 x, u32 bits) {
    u64 y = (i64)x < 0 ? ~x : x;
    if (!y) return ~0u;
    return (u32)__builtin_clzll(y) - (64 - bits);
}

static void jump_to(Wave *w, const Inst *i, i64 word) {
    const Module *m = w->group->module;
    i64 words = (i64)(m->text_end - m->text_start) / 4;
    if (word < 0 || word >= words) fault(w, i, "jumps outside the code");
    w->next = m->insts + word;
}

static void jump(Wave *w, const Inst *i, bool taken) {
    if (taken) jump_to(w, i, w->next - w->group->module->insts + (i16)i->literal);
}

static u64 next_address(const Wave *w) {
    const Module *m = w->group->module;
    return (u64)(m->image + m->text_start) + 4 * (u64)(w->next - m->insts);
}

static void jump_address(Wave *w, const Inst *i, u64 address) {
    const Module *m = w->group->module;
    u64 start = (u64)(m->image + m->text_start);
    if (address & 3) fault(w, i, "jumps to an odd address");
    jump_to(w, i, (i64)(address - start) / 4);
}

static void exec_s_getpc_b64(Wave *w, const Inst *i) { write_s64(w, i, i->sdst, next_address(w)); }
static void exec_s_setpc_b64(Wave *w, const Inst *i) {
    jump_address(w, i, scalar_u64(w, i, i->src[0]));
}
static void exec_s_swappc_b64(Wave *w, const Inst *i) {
    u64 target = scalar_u64(w, i, i->src[0]);
    write_s64(w, i, i->sdst, next_address(w));
    jump_address(w, i, target);
}

static void exec_s_call_b64(Wave *w, const Inst *i) {
    write_s64(w, i, i->sdst, next_address(w));
    jump(w, i, true);
}

/* Hardware registers: id in bits 0..5, first bit in 6..10, width - 1 in 11..15. MODE alone. */
static void exec_s_getreg_b32(Wave *w, const Inst *i) {
    u32 id = i->literal & 63, offset = i->literal >> 6 & 31, width = (i->literal >> 11 & 31) + 1;
    if (id != 1) fault(w, i, "hardware register %u is not modelled", id);
    write_s32(w, i, i->sdst, (u32)field(w->mode, offset, width, 64, false));
}

static void set_register(Wave *w, const Inst *i, u32 value) {
    u32 id = i->literal & 63, offset = i->literal >> 6 & 31, width = (i->literal >> 11 & 31) + 1;
    if (id != 1) fault(w, i, "hardware register %u is not modelled", id);
    u32 mask = (u32)((1ull << width) - 1) << offset;
    w->mode = (w->mode & ~mask) | (value << offset & mask);
    enter_mode(w);
}
static void exec_s_setreg_b32(Wave *w, const Inst *i) {
    set_register(w, i, scalar_u32(w, i, i->sdst));
}
static void exec_s_setreg_imm32_b32(Wave *w, const Inst *i) { set_register(w, i, i->word[1]); }

static u64 scalar_i64(Wave *w, const Inst *i, unsigned r) {
    return r == LITERAL ? (u64)(i64)(i32)i->literal : scalar_u64(w, i, r);
}

/* clang-format off */
#define GET_u32 scalar_u32
#define GET_u64 scalar_u64
#define GET_i64 scalar_i64
#define PUT_u32 write_s32
#define PUT_u64 write_s64
#define SET(x) d = (x); scc = d != 0
#define EXEC_BECOMES(x) exec_next = (x); scc = exec_next != 0; writes_exec = true

#define S2(number, name, TD, TA, TB, ...)                                                   \
    static void exec_##name(Wave *w, const Inst *i) {                                       \
        TA a = (TA)GET_##TA(w, i, i->src[0]);                                               \
        TB b = GET_##TB(w, i, i->src[1]);                                                   \
        TD d;                                                                               \
        u32 scc = w->scc;                                                                   \
        __VA_ARGS__;                                                                        \
        w->scc = scc;                                                                       \
        PUT_##TD(w, i, i->sdst, d);                                                         \
    }
#define S1(number, name, TD, TA, ...)                                                       \
    static void exec_##name(Wave *w, const Inst *i) {                                       \
        TA a = GET_##TA(w, i, i->src[0]);                                                   \
        TD d, old = GET_##TD(w, i, i->sdst);                                                \
        u32 scc = w->scc;                                                                   \
        u64 exec = exec_mask(w), exec_next = exec;                                          \
        bool writes_exec = false;                                                           \
        (void)old;                                                                          \
        __VA_ARGS__;                                                                        \
        w->scc = scc;                                                                       \
        PUT_##TD(w, i, i->sdst, d);                                                         \
        if (writes_exec) set_pair(w->s + EXEC, exec_next);                                  \
    }
#define SC(number, name, T, ...)                                                            \
    static void exec_##name(Wave *w, const Inst *i) {                                       \
        T a = GET_##T(w, i, i->src[0]);                                                     \
        T b = GET_##T(w, i, i->src[1]);                                               \
        w->scc = (__VA_ARGS__) != 0;                                                        \
    }
#define SK(number, name, ...)                                                               \
    static void exec_##name(Wave *w, const Inst *i) {                                       \
        u32 ks = i->literal, old = scalar_u32(w, i, i->sdst), scc = w->scc, d;              \
        (void)old;                                                                          \
        __VA_ARGS__;                                                                        \
        w->scc = scc;                                                                       \
        write_s32(w, i, i->sdst, d);                                                        \
    }
#define SKC(number, name, ...)                                                              \
    static void exec_##name(Wave *w, const Inst *i) {                                       \
        u32 ks = i->literal, k = ks & 0xffff, old = scalar_u32(w, i, i->sdst);              \
        (void)ks, (void)k;                                                                  \
        w->scc = (__VA_ARGS__);                                                             \
    }
#define SP(number, name, class, ...)                                                        \
    static void exec_##name(Wave *w, const Inst *i) { (void)i; __VA_ARGS__; }
#define SX(encoding, number, name, class)
#include "scalar_ops.h"
#undef S2
#undef S1
#undef SC
#undef SK
#undef SKC
#undef SP
#undef SX

#define ROW(enc, cls, num, nm) {.encoding = enc, .class = cls, .targets = ON_BOTH, .number = num, \
                                .name = #nm, .exec = exec_##nm},
#define S2(number, name, ...) ROW(SOP2, CLASS_SALU, number, name)
#define S1(number, name, ...) ROW(SOP1, CLASS_SALU, number, name)
#define SC(number, name, ...) ROW(SOPC, CLASS_SALU, number, name)
#define SK(number, name, ...) ROW(SOPK, CLASS_SALU, number, name)
#define SKC(number, name, ...) ROW(SOPK, CLASS_SALU, number, name)
#define SP(number, name, class, ...) ROW(SOPP, class, number, name)
#define SX(encoding, number, name, class) ROW(encoding, class, number, name)
const Op scalar_ops[] = {
#include "scalar_ops.h"
};
const int num_scalar_ops = sizeof scalar_ops / sizeof *scalar_ops;
