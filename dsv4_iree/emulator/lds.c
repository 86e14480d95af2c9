/* LDS: loads, stores, atomics, exchanges between lanes, transposing loads; bounds and races. */
#include <stdio.h>
#include "memory.h"

void lds_outside(Wave *w, const Inst *i, int lane, u32 address, u32 bytes) {
    fault(w, i, "lane %d touches LDS bytes %u..%llu of %u", lane, address,
          (unsigned long long)address + bytes - 1, w->group->lds_bytes);
}

/* Name a wave that owns a byte other than ours; 255 stands for several. */
static const char *owner_name(u32 owners, u32 me, char *out, size_t size) {
    for (int n = 0; n < 4; n++) {
        u32 owner = owners >> 8 * n & 255;
        if (!owner || owner == me) continue;
        if (owner == 255) return "several waves";
        snprintf(out, size, "wave %u", owner - 1);
        return out;
    }
    return NULL;
}

static void __attribute__((noreturn)) conflict(Wave *w, const Inst *i, u32 address, const Owners *s,
                                               Access access) {
    char name[32];
    u32 me = w->number + 1;
    const char *verb = access == READ    ? "reads"
                       : access == WRITE ? "writes"
                                         : "updates",
               *did = "wrote";
    const char *who = owner_name(s->writer, me, name, sizeof name);
    if (!who)
        did = "read", who = access == READ ? NULL : owner_name(s->reader, me, name, sizeof name);
    if (!who) did = "updated", who = owner_name(s->atomic, me, name, sizeof name);
    fault(w, i, "LDS race: wave %u %s byte %u, which %s %s with no barrier between", w->number,
          verb, address, who ? who : "another wave", did);
}

/* Is any of the masked bytes owned by a wave other than the one whose number fills `mine`? */
static inline bool foreign(u32 owners, u32 mask, u32 mine) {
    owners &= mask;
    if (owners == 0 || owners == mine) return false;
    for (int n = 0; n < 4; n++) {
        u32 owner = owners >> 8 * n & 255;
        if (owner && owner != (mine >> 8 * n & 255)) return true;
    }
    return false;
}

/* The owners that a mark of this epoch stands for. */
static void unfold(u32 mark, Owners *s) {
    u32 all = (mark & 0x3f) * 0x01010101u;
    if (mark & MARK_WRITTEN) *s = (Owners){.writer = all};
    else *s = (Owners){.reader = mark & MARK_READ_BY_SEVERAL ? 0xffffffff : all};
}

static u32 fold(const Owners *s) {
    u32 first = s->writer & 255, reader = s->reader & 255;
    if (!(s->reader | s->atomic) && s->writer == first * 0x01010101u) return MARK_WRITTEN | first;
    if (!(s->writer | s->atomic) && s->reader == reader * 0x01010101u)
        return reader == 255 ? MARK_READ_BY_SEVERAL : reader;
    return MARK_BYTES;
}

void lds_touch_bytes(Wave *w, const Inst *i, u32 address, u32 bytes, Access access) {
    Group *g = w->group;
    for (u32 at = address, end = address + bytes; at < end; at = (at | 3) + 1) {
        u32 size = (end < (at | 3) + 1 ? end : (at | 3) + 1) - at;
        u32 mask = (u32)((1ull << 8 * size) - 1) << 8 * (at & 3);
        u32 mine = (w->number + 1) * 0x01010101u & mask;
        u32 *mark = g->marks + at / 4;
        Owners *s = g->owners + at / 4;
        if (*mark >> MARK_BITS != g->epoch) *s = (Owners){0};
        else if ((*mark & 255) != MARK_BYTES) unfold(*mark & 255, s);
        bool race = foreign(s->writer, mask, mine) ||
                    (access != READ && foreign(s->reader, mask, mine)) ||
                    (access != ATOMIC && foreign(s->atomic, mask, mine));
        if (race) conflict(w, i, at, s, access);
        u32 *owner = access == WRITE ? &s->writer : access == READ ? &s->reader : &s->atomic;
        if (foreign(*owner, mask, mine)) *owner |= mask;
        else *owner = (*owner & ~mask) | mine;
        *mark = g->epoch << MARK_BITS | fold(s);
    }
}

/* ---- whole rows at once ------------------------------------------------------------------- */

/* For all lanes: in bounds, on words, and marks say it all? Then note the touch. */
static bool touch_rows(Wave *w, const u32 *at, u32 offset, u32 words, Access access) {
    Group *g = w->group;
    u32 highest = 0, odd = 0, changed = 0, beyond = 0, fresh[4][LANES];
    if (exec_mask(w) != ~0ull || offset & 3) return false;
    EACH_LANE highest = at[l] > highest ? at[l] : highest, odd |= at[l] & 3;
    if (odd || (u64)highest + offset + 4 * words > g->lds_bytes) return false;
    if (!g->marks) return true;
    u32 *marks = g->marks + offset / 4, epoch = g->epoch, wave = w->number;
    for (u32 n = 0; n < words; n++) EACH_LANE {
            u32 mark = marks[at[l] / 4 + n], next = next_mark(mark, epoch, wave, access);
            fresh[n][l] = next;
            changed |= next ^ mark, beyond |= next == 0;
        }
    if (beyond) return false;
    for (u32 n = 0; changed && n < words; n++) EACH_LANE marks[at[l] / 4 + n] = fresh[n][l];
    return true;
}

static void read_words(Wave *w, const Inst *i, const u32 *at, u32 offset, u32 words, Row *to) {
    if (touch_rows(w, at, offset, words, READ)) {
        const u32 *lds = (const u32 *)w->group->lds + offset / 4;
        for (u32 n = 0; n < words; n++) EACH_LANE to[n][l] = lds[at[l] / 4 + n];
        return;
    }
    EACH_ACTIVE (exec_mask(w)) {
        const u8 *p = lds_at(w, i, l, at[l] + offset, 4 * words, READ);
        for (u32 n = 0; n < words; n++) memcpy(&to[n][l], p + 4 * n, 4);
    }
}

static void write_words(Wave *w, const Inst *i, const u32 *at, u32 offset, u32 words,
                        const Row *from) {
    if (touch_rows(w, at, offset, words, WRITE)) {
        u32 *lds = (u32 *)w->group->lds + offset / 4;
        EACH_LANE for (u32 n = 0; n < words; n++) lds[at[l] / 4 + n] = from[n][l];
        return;
    }
    EACH_ACTIVE (exec_mask(w)) {
        u8 *p = lds_at(w, i, l, at[l] + offset, 4 * words, WRITE);
        for (u32 n = 0; n < words; n++) memcpy(p + 4 * n, &from[n][l], 4);
    }
}

/* ---- loads and stores --------------------------------------------------------------------- */

static void ds_read(Wave *w, const Inst *i) {
    Unit unit = i->op->a;
    u32 words = i->op->b, size = unit_bytes(unit);
    Part part = i->op->c;
    Row at;
    memcpy(at, w->v[i->vaddr], sizeof at); /* the result may overwrite the address */
    if (unit == WORDS) {
        read_words(w, i, at, (u32)i->offset, words, &w->v[i->dst]);
        return;
    }
    EACH_ACTIVE (exec_mask(w)) {
        const u8 *p = lds_at(w, i, l, at[l] + (u32)i->offset, size * words, READ);
        for (u32 n = 0; n < words; n++)
            set_part(&w->v[i->dst + n][l], load_unit(p + 4 * n, unit), part);
    }
}

static void ds_write(Wave *w, const Inst *i) {
    Unit unit = i->op->a;
    u32 words = i->op->b, size = unit_bytes(unit);
    Part part = i->op->c;
    if (unit == WORDS) {
        write_words(w, i, w->v[i->vaddr], (u32)i->offset, words, &w->v[i->vdata]);
        return;
    }
    EACH_ACTIVE (exec_mask(w)) {
        u8 *p = lds_at(w, i, l, w->v[i->vaddr][l] + (u32)i->offset, size * words, WRITE);
        for (u32 n = 0; n < words; n++) store_unit(p + 4 * n, w->v[i->vdata + n][l], unit, part);
    }
}

/* Two accesses; their offsets count elements, or 64 of them. */
static void ds_read2(Wave *w, const Inst *i) {
    u32 words = i->op->a, scale = 4 * words * i->op->b;
    Row at;
    memcpy(at, w->v[i->vaddr], sizeof at);
    for (u32 half = 0; half < 2; half++)
        read_words(w, i, at, scale * (u32)(half ? i->offset2 : i->offset & 255), words,
                   &w->v[i->dst + half * words]);
}

static void ds_write2(Wave *w, const Inst *i) {
    u32 words = i->op->a, scale = 4 * words * i->op->b;
    for (u32 half = 0; half < 2; half++)
        write_words(w, i, w->v[i->vaddr], scale * (u32)(half ? i->offset2 : i->offset & 255), words,
                    &w->v[half ? i->vdata2 : i->vdata]);
}

/* Lanes in order. Compare-and-store has the value to compare with first, then the new one. */
static void ds_atomic(Wave *w, const Inst *i) {
    Atomic op = i->op->a;
    u32 size = i->op->b, words = size / 4;
    bool returns = i->op->c;
    Row at;
    memcpy(at, w->v[i->vaddr], sizeof at);
    Row *d0 = &w->v[i->vdata], *d1 = &w->v[i->vdata2];
    EACH_ACTIVE (exec_mask(w)) {
        u8 *p = lds_at(w, i, l, at[l] + (u32)i->offset, size, ATOMIC);
        u64 old = 0, first = d0[0][l], second = d1[0][l];
        if (words == 2) first |= (u64)d0[1][l] << 32, second |= (u64)d1[1][l] << 32;
        memcpy(&old, p, size);
        u64 fresh = op == A_CMPSWAP ? atomic_result(op, old, second, first, (int)size)
                                    : atomic_result(op, old, first, 0, (int)size);
        memcpy(p, &fresh, size);
        if (!returns) continue;
        w->v[i->dst][l] = (u32)old;
        if (words == 2) w->v[i->dst + 1][l] = (u32)(old >> 32);
    }
}

/* ---- between lanes ------------------------------------------------------------------------ */

/* Push: lane l's value goes to lane address / 4; lanes nobody wrote to get 0. */
static void ds_permute_b32(Wave *w, const Inst *i) {
    Row d = {0};
    EACH_ACTIVE (exec_mask(w)) {
        d[(w->v[i->vaddr][l] + (u32)i->offset) >> 2 & 63] = w->v[i->vdata][l];
    }
    write_row(w, i->dst, d, exec_mask(w));
}

/* Pull: lane l gets the value of lane address / 4, 0 if that one is inactive. */
static void ds_bpermute_b32(Wave *w, const Inst *i) {
    Row d;
    u64 exec = exec_mask(w);
    EACH_LANE {
        u32 from = (w->v[i->vaddr][l] + (u32)i->offset) >> 2 & 63;
        d[l] = exec >> from & 1 ? w->v[i->vdata][from] : 0;
    }
    write_row(w, i->dst, d, exec);
}

/* A fixed pattern: any permutation of 4, or and/or/xor masks on the lane number within 32. */
static void ds_swizzle_b32(Wave *w, const Inst *i) {
    u32 pattern = (u32)i->offset;
    u64 exec = exec_mask(w);
    Row d;
    if (pattern >= 0xc000) fault(w, i, "swizzle pattern 0x%x is not modelled", pattern);
    EACH_LANE {
        u32 in32 = (u32)l & 31, from;
        if (pattern & 0x8000) from = ((u32)l & ~3u) | (pattern >> 2 * (l & 3) & 3);
        else
            from =
                ((u32)l & 32) | (((in32 & pattern) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
        d[l] = exec >> from & 1 ? w->v[i->vaddr][from] : 0;
    }
    write_row(w, i->dst, d, exec);
}

/* ---- transposing loads -------------------------------------------------------------------- */

/* Sixteen lanes load a matrix of 16 columns row by row; each lane gets a column. A lane's own load
 * is op->b words, elements op->a bits wide. */
static void ds_read_transposed(Wave *w, const Inst *i) {
    u32 bits = i->op->a, words = i->op->b, per_lane = 32 * words / bits;
    u32 loaded[LANES][3] = {{0}}, moved[LANES][3] = {{0}};
    if (exec_mask(w) != ~0ull)
        fault(w, i, "a transposing load with inactive lanes is not modelled");
    EACH_LANE memcpy(
        loaded[l], lds_at(w, i, l, w->v[i->vaddr][l] + (u32)i->offset, 4 * words, READ), 4 * words);
    EACH_LANE for (u32 j = 0; j < per_lane; j++) {
        u32 column = (u32)l & 15, flat = 16 * j + column; /* row j of the matrix, lane's column */
        u32 from = ((u32)l & ~15u) + flat / per_lane, bit = flat % per_lane * bits;
        u64 pair_of = loaded[from][bit / 32] |
                      (u64)(bit / 32 + 1 < words ? loaded[from][bit / 32 + 1] : 0) << 32;
        u64 x = pair_of >> bit % 32 & ((1ull << bits) - 1);
        u32 to = j * bits;
        moved[l][to / 32] |= (u32)(x << to % 32);
        if (to % 32 + bits > 32) moved[l][to / 32 + 1] |= (u32)(x >> (32 - to % 32));
    }
    for (u32 n = 0; n < words; n++) EACH_LANE w->v[i->dst + n][l] = moved[l][n];
}

/* ---- the list ----------------------------------------------------------------------------- */

/* clang-format off */
#define ROW(on, num, nm, fn, x, y, z) \
    {.encoding = DS, .class = CLASS_LDS, .targets = on, .number = num, .name = #nm, .exec = fn, \
     .a = x, .b = y, .c = z},
#define PAIR(num, num_rtn, num64, num64_rtn, p, t32, t64, op)                         \
    ROW(ON_BOTH, num, p##_##t32, ds_atomic, op, 4, 0)                                 \
    ROW(ON_BOTH, num_rtn, p##_rtn_##t32, ds_atomic, op, 4, 1)                         \
    ROW(ON_BOTH, num64, p##_##t64, ds_atomic, op, 8, 0)                               \
    ROW(ON_BOTH, num64_rtn, p##_rtn_##t64, ds_atomic, op, 8, 1)
const Op lds_ops[] = {
    PAIR(0, 32, 64, 96, ds_add, u32, u64, A_ADD)
    PAIR(1, 33, 65, 97, ds_sub, u32, u64, A_SUB)
    PAIR(2, 34, 66, 98, ds_rsub, u32, u64, A_RSUB)
    PAIR(3, 35, 67, 99, ds_inc, u32, u64, A_INC)
    PAIR(4, 36, 68, 100, ds_dec, u32, u64, A_DEC)
    PAIR(5, 37, 69, 101, ds_min, i32, i64, A_SMIN)
    PAIR(6, 38, 70, 102, ds_max, i32, i64, A_SMAX)
    PAIR(7, 39, 71, 103, ds_min, u32, u64, A_UMIN)
    PAIR(8, 40, 72, 104, ds_max, u32, u64, A_UMAX)
    PAIR(9, 41, 73, 105, ds_and, b32, b64, A_AND)
    PAIR(10, 42, 74, 106, ds_or, b32, b64, A_OR)
    PAIR(11, 43, 75, 107, ds_xor, b32, b64, A_XOR)
    PAIR(16, 48, 80, 112, ds_cmpst, b32, b64, A_CMPSWAP)
    PAIR(18, 50, 82, 114, ds_min, f32, f64, A_MIN_F)
    PAIR(19, 51, 83, 115, ds_max, f32, f64, A_MAX_F)
    PAIR(21, 53, 92, 124, ds_add, f32, f64, A_ADD_F)
    ROW(ON_BOTH, 23, ds_pk_add_f16, ds_atomic, A_PK_ADD_F16, 4, 0)
    ROW(ON_BOTH, 24, ds_pk_add_bf16, ds_atomic, A_PK_ADD_BF16, 4, 0)
    ROW(ON_BOTH, 183, ds_pk_add_rtn_f16, ds_atomic, A_PK_ADD_F16, 4, 1)
    ROW(ON_BOTH, 184, ds_pk_add_rtn_bf16, ds_atomic, A_PK_ADD_BF16, 4, 1)
    ROW(ON_BOTH, 45, ds_wrxchg_rtn_b32, ds_atomic, A_SWAP, 4, 1)
    ROW(ON_BOTH, 109, ds_wrxchg_rtn_b64, ds_atomic, A_SWAP, 8, 1)
    ROW(ON_BOTH, 13, ds_write_b32, ds_write, WORDS, 1, WHOLE)
    ROW(ON_BOTH, 77, ds_write_b64, ds_write, WORDS, 2, WHOLE)
    ROW(ON_BOTH, 222, ds_write_b96, ds_write, WORDS, 3, WHOLE)
    ROW(ON_BOTH, 223, ds_write_b128, ds_write, WORDS, 4, WHOLE)
    ROW(ON_BOTH, 30, ds_write_b8, ds_write, UBYTE, 1, WHOLE)
    ROW(ON_BOTH, 31, ds_write_b16, ds_write, USHORT, 1, WHOLE)
    ROW(ON_BOTH, 84, ds_write_b8_d16_hi, ds_write, UBYTE, 1, HIGH_HALF)
    ROW(ON_BOTH, 85, ds_write_b16_d16_hi, ds_write, USHORT, 1, HIGH_HALF)
    ROW(ON_BOTH, 14, ds_write2_b32, ds_write2, 1, 1, 0)
    ROW(ON_BOTH, 15, ds_write2st64_b32, ds_write2, 1, 64, 0)
    ROW(ON_BOTH, 78, ds_write2_b64, ds_write2, 2, 1, 0)
    ROW(ON_BOTH, 79, ds_write2st64_b64, ds_write2, 2, 64, 0)
    ROW(ON_BOTH, 54, ds_read_b32, ds_read, WORDS, 1, WHOLE)
    ROW(ON_BOTH, 118, ds_read_b64, ds_read, WORDS, 2, WHOLE)
    ROW(ON_BOTH, 254, ds_read_b96, ds_read, WORDS, 3, WHOLE)
    ROW(ON_BOTH, 255, ds_read_b128, ds_read, WORDS, 4, WHOLE)
    ROW(ON_BOTH, 57, ds_read_i8, ds_read, SBYTE, 1, WHOLE)
    ROW(ON_BOTH, 58, ds_read_u8, ds_read, UBYTE, 1, WHOLE)
    ROW(ON_BOTH, 59, ds_read_i16, ds_read, SSHORT, 1, WHOLE)
    ROW(ON_BOTH, 60, ds_read_u16, ds_read, USHORT, 1, WHOLE)
    ROW(ON_BOTH, 86, ds_read_u8_d16, ds_read, UBYTE, 1, LOW_HALF)
    ROW(ON_BOTH, 87, ds_read_u8_d16_hi, ds_read, UBYTE, 1, HIGH_HALF)
    ROW(ON_BOTH, 88, ds_read_i8_d16, ds_read, SBYTE, 1, LOW_HALF)
    ROW(ON_BOTH, 89, ds_read_i8_d16_hi, ds_read, SBYTE, 1, HIGH_HALF)
    ROW(ON_BOTH, 90, ds_read_u16_d16, ds_read, USHORT, 1, LOW_HALF)
    ROW(ON_BOTH, 91, ds_read_u16_d16_hi, ds_read, USHORT, 1, HIGH_HALF)
    ROW(ON_BOTH, 55, ds_read2_b32, ds_read2, 1, 1, 0)
    ROW(ON_BOTH, 56, ds_read2st64_b32, ds_read2, 1, 64, 0)
    ROW(ON_BOTH, 119, ds_read2_b64, ds_read2, 2, 1, 0)
    ROW(ON_BOTH, 120, ds_read2st64_b64, ds_read2, 2, 64, 0)
    ROW(ON_BOTH, 61, ds_swizzle_b32, ds_swizzle_b32, 0, 0, 0)
    ROW(ON_BOTH, 62, ds_permute_b32, ds_permute_b32, 0, 0, 0)
    ROW(ON_BOTH, 63, ds_bpermute_b32, ds_bpermute_b32, 0, 0, 0)
    ROW(ON_950, 224, ds_read_b64_tr_b4, ds_read_transposed, 4, 2, 0)
    ROW(ON_950, 225, ds_read_b96_tr_b6, ds_read_transposed, 6, 3, 0)
    ROW(ON_950, 226, ds_read_b64_tr_b8, ds_read_transposed, 8, 2, 0)
    ROW(ON_950, 227, ds_read_b64_tr_b16, ds_read_transposed, 16, 2, 0)
};
const int num_lds_ops = sizeof lds_ops / sizeof *lds_ops;
