/* Vector operands with their modifiers, DPP and SDWA, and the write of results. */
#include "operands.h"

/* ---- sources ------------------------------------------------------------------------------ */

/* The lane that a DPP control reads for lane `l`; -1 where there is none. */
static int dpp_lane(Wave *w, const Inst *i, int l) {
    unsigned c = i->dpp_ctrl;
    int row = l & ~15, at = l & 15, amount = (int)c & 15;
    if (c < 0x100) return (l & ~3) | (int)(c >> 2 * (l & 3) & 3);          /* quad_perm */
    if (c > 0x100 && c < 0x110) return at + amount < 16 ? l + amount : -1; /* row_shl */
    if (c > 0x110 && c < 0x120) return at - amount >= 0 ? l - amount : -1; /* row_shr */
    if (c > 0x120 && c < 0x130) return row + ((at - amount) & 15);         /* row_ror */
    if (c >= 0x150 && c < 0x160) return row + amount;                      /* row_newbcast */
    switch (c) {
    case 0x130: return l < 63 ? l + 1 : -1;    /* wave_shl */
    case 0x134: return (l + 1) & 63;           /* wave_rol */
    case 0x138: return l - 1;                  /* wave_shr */
    case 0x13c: return (l - 1) & 63;           /* wave_ror */
    case 0x140: return row + 15 - at;          /* row_mirror */
    case 0x141: return (l & ~7) + 7 - (l & 7); /* row_half_mirror */
    case 0x142: return row - 1;           /* row_bcast:15, lane 15 of each row to the next row */
    case 0x143: return l >= 32 ? 31 : -1; /* row_bcast:31, lane 31 to the upper half */
    }
    fault(w, i, "DPP control 0x%x is not modelled", c);
}

/* Lanes whose DPP source does not exist or is inactive read 0 if bound_ctrl, else are not written;
 * row_mask and bank_mask keep lanes from being written in any case. */
static u64 dpp_written(Wave *w, const Inst *i) {
    u64 exec = exec_mask(w), written = 0;
    EACH_LANE {
        int from = dpp_lane(w, i, l);
        bool valid = from >= 0 && (exec >> from & 1);
        bool enabled = (i->row_mask >> (l >> 4) & 1) && (i->bank_mask >> (l >> 2 & 3) & 1);
        written |= (u64)(enabled && (valid || i->bound_ctrl)) << l;
    }
    return written & exec;
}

static void dpp_source(Wave *w, const Inst *i, const u32 *from, u32 *to) {
    u64 exec = exec_mask(w);
    Row moved;
    EACH_LANE {
        int lane = dpp_lane(w, i, l);
        moved[l] = lane >= 0 && (exec >> lane & 1) ? from[lane] : 0;
    }
    memcpy(to, moved, sizeof moved);
}

enum { SEL_WORD0 = 4, SEL_DWORD = 6 };

/* SDWA: take a byte or a half of the source, extended by zeros or by its sign. */
static void sdwa_source(const Inst *i, int n, u32 *row) {
    unsigned sel = i->sel[n];
    bool sign = i->sext >> n & 1;
    if (sel == SEL_DWORD) return;
    EACH_LANE {
        if (sel < SEL_WORD0) {
            u32 x = row[l] >> 8 * sel & 0xff;
            row[l] = sign ? (u32)(i32)(i8)x : x;
        } else {
            u32 x = row[l] >> 16 * (sel - SEL_WORD0) & 0xffff;
            row[l] = sign ? (u32)(i32)(i16)x : x;
        }
    }
}

static void float_modifiers(const Inst *i, int n, u32 sign_bit, u32 *row) {
    if (i->abs >> n & 1) EACH_LANE row[l] &= ~sign_bit;
    if (i->neg >> n & 1) EACH_LANE row[l] ^= sign_bit;
}

const u32 *source_row(Wave *w, const Inst *i, int n, Kind kind, u32 *row) {
    unsigned r = i->src[n];
    if (r >= AGPR0) fault(w, i, "accumulation registers are not operands of vector arithmetic");
    if (r < VGPR0) {
        bool half = kind == KIND_F16 || kind == KIND_I16;
        u32 x = half ? scalar_f16(w, i, r) : scalar_u32(w, i, r);
        EACH_LANE row[l] = x;
    } else {
        memcpy(row, w->v[r - VGPR0], sizeof(Row));
    }
    if (i->simple) return row;
    if (i->dpp && n == 0) dpp_source(w, i, row, row);
    if (i->sdwa && n < 2) sdwa_source(i, n, row);
    bool modified = (i->abs | i->neg) >> n & 1;
    switch (kind) {
    case KIND_F32: float_modifiers(i, n, 0x80000000, row); break;
    case KIND_F16:
        if (i->op_sel >> n & 1) EACH_LANE row[l] >>= 16;
        float_modifiers(i, n, 0x8000, row);
        break;
    case KIND_I16:
        if (i->op_sel >> n & 1) EACH_LANE row[l] >>= 16;
        /* fall through */
    case KIND_INT:
        if (modified) fault(w, i, "abs or neg on an integer operand is not modelled");
    }
    if (i->op_sel && kind != KIND_F16 && kind != KIND_I16) fault(w, i, "op_sel is not modelled");
    return row;
}

static bool flushes(const Wave *w) { return (w->mode >> 4 & 3) == 0; }

const u64 *source_row64(Wave *w, const Inst *i, int n, bool is_float, u64 *row) {
    unsigned r = i->src[n];
    if (i->sdwa) fault(w, i, "SDWA on 64-bit operands is not modelled");
    if (is_float && flushes(w)) fault(w, i, "64-bit floats while 32-bit ones flush: not modelled");
    if (r < VGPR0) {
        u64 x = is_float ? scalar_f64(w, i, r) : scalar_u64(w, i, r);
        EACH_LANE row[l] = x;
    } else {
        Row low, high;
        memcpy(low, w->v[r - VGPR0], sizeof low);
        memcpy(high, w->v[r - VGPR0 + 1], sizeof high);
        if (i->dpp && n == 0) dpp_source(w, i, low, low), dpp_source(w, i, high, high);
        EACH_LANE row[l] = (u64)high[l] << 32 | low[l];
    }
    bool modified = (i->abs | i->neg) >> n & 1;
    if (modified && !is_float) fault(w, i, "abs or neg on an integer operand is not modelled");
    if (i->abs >> n & 1) EACH_LANE row[l] &= ~(1ull << 63);
    if (i->neg >> n & 1) EACH_LANE row[l] ^= 1ull << 63;
    return row;
}

/* ---- results ------------------------------------------------------------------------------ */

u64 lanes_written(Wave *w, const Inst *i) { return i->dpp ? dpp_written(w, i) : exec_mask(w); }

void write_row(Wave *w, unsigned reg, const u32 *d, u64 mask) {
    u32 *to = w->v[reg];
    if (mask == ~0ull) {
        memcpy(to, d, sizeof(Row));
        return;
    }
    EACH_LANE to[l] = mask >> l & 1 ? d[l] : to[l];
}

/* Output scale, then clamp to 0..1 (a NaN becomes 0 if the mode's DX10_CLAMP is on). */
static void float_output(Wave *w, const Inst *i, u32 *d, bool half) {
    static const float scales[] = {1, 2, 4, .5f};
    if (i->omod && !flushes(w)) fault(w, i, "output scale while subnormals are kept");
    EACH_LANE {
        float x = (half ? as_f16(d[l]) : as_f32(d[l])) * scales[i->omod];
        if (i->clamp) {
            if (isnan(x) && !(w->mode >> 8 & 1)) continue;
            x = x > 1 ? 1 : x > 0 ? x : 0;
        }
        d[l] = half ? from_f16(x) : from_f32(x);
    }
}

static void sdwa_result(Wave *w, const Inst *i, u32 *d, const u32 *old) {
    if (i->dst_sel == SEL_DWORD) return;
    bool byte = i->dst_sel < SEL_WORD0;
    u32 bits = byte ? 8 : 16, shift = byte ? 8 * i->dst_sel : 16 * (i->dst_sel - SEL_WORD0);
    u32 mask = ((1u << bits) - 1) << shift;
    EACH_LANE {
        u32 x = d[l] << shift & mask;
        switch (i->dst_unused) {
        case 0: d[l] = x; break; /* the rest becomes zero */
        case 1: d[l] = x | (d[l] >> (bits - 1) & 1 ? ~(mask | (mask - 1)) : 0); break; /* sign */
        case 2: d[l] = x | (old[l] & ~mask); break; /* the rest is kept */
        default: fault(w, i, "reserved dst_unused");
        }
    }
}

void write_result(Wave *w, const Inst *i, u32 *d, Kind kind) {
    if (i->clamp || i->omod) {
        if (kind != KIND_F32) fault(w, i, "clamp or output scale on an integer is not modelled");
        float_output(w, i, d, false);
    }
    if (i->sdwa) sdwa_result(w, i, d, w->v[i->dst]);
    write_row(w, i->dst, d, lanes_written(w, i));
}

void write_result16(Wave *w, const Inst *i, u32 *d, Kind kind, bool keep_high) {
    if (i->clamp || i->omod) {
        if (kind != KIND_F16) fault(w, i, "clamp or output scale on an integer is not modelled");
        float_output(w, i, d, true);
    }
    const u32 *old = w->v[i->dst];
    bool high = !i->sdwa && (i->op_sel >> 3 & 1);
    if (high) EACH_LANE d[l] = d[l] << 16 | (old[l] & 0xffff);
    else if (keep_high && !i->sdwa) EACH_LANE d[l] = (d[l] & 0xffff) | (old[l] & 0xffff0000);
    if (i->sdwa) sdwa_result(w, i, d, old);
    write_row(w, i->dst, d, lanes_written(w, i));
}

void write_result64(Wave *w, const Inst *i, u64 *d, bool is_float) {
    if (i->omod || (i->clamp && !is_float)) fault(w, i, "clamp or output scale is not modelled");
    if (i->clamp) EACH_LANE {
            double x = as_f64(d[l]);
            d[l] = from_f64(x > 1 ? 1 : x > 0 ? x : 0);
        }
    Row low, high;
    EACH_LANE low[l] = (u32)d[l], high[l] = (u32)(d[l] >> 32);
    u64 mask = lanes_written(w, i);
    write_row(w, i->dst, low, mask);
    write_row(w, i->dst + 1u, high, mask);
}
