/* Access to memory, checked: global through live allocations, LDS within the workgroup's share. */
#pragma once
#include "operands.h"

typedef enum { READ, WRITE, ATOMIC } Access;

u8 *global_slow(Wave *w, const Inst *i, int lane, u64 address, u32 bytes, Access access);
void lds_outside(Wave *w, const Inst *i, int lane, u32 address, u32 bytes)
    __attribute__((noreturn));
void count_distinct(const Region *r, u64 address, u32 bytes, bool write);

/* Where `bytes` at `address` are; faults unless one live allocation holds them all. */
static inline u8 *global_at(Wave *w, const Inst *i, int lane, u64 address, u32 bytes,
                            Access access) {
    bool inside =
        address >= w->region_start && address < w->region_end && bytes <= w->region_end - address;
    if (__builtin_expect(!inside, 0)) return global_slow(w, i, lane, address, bytes, access);
    if (__builtin_expect(w->region->read_map != NULL, 0))
        count_distinct(w->region, address, bytes, access != READ);
    return (u8 *)address;
}

void lds_touch_bytes(Wave *w, const Inst *i, u32 address, u32 bytes, Access access);

/* The mark that a whole word bears after one more touch, 0 if it takes more than a mark to say. */
static inline u32 next_mark(u32 mark, u32 epoch, u32 wave, Access access) {
    u32 now = epoch << MARK_BITS,
        mine = access == WRITE ? now | MARK_WRITTEN | (wave + 1) : now | (wave + 1);
    u32 several = now | MARK_READ_BY_SEVERAL;
    bool only_read = !(mark & (MARK_WRITTEN | MARK_READ_BY_SEVERAL)) || mark == several;
    return mark >> MARK_BITS != epoch || mark == mine ? mine
           : access == READ && only_read              ? several
                                                      : 0;
}

/* Note who touches which words, and fault on a race: another wave's touch since the last barrier,
 * at least one of the two a write and not both atomic. */
static inline void lds_touch(Wave *w, const Inst *i, u32 address, u32 bytes, Access access) {
    Group *g = w->group;
    if (!g->marks) return;
    bool whole = !((address | bytes) & 3) && access != ATOMIC;
    for (u32 at = address; whole && at < address + bytes; at += 4) {
        u32 mark = next_mark(g->marks[at / 4], g->epoch, w->number, access);
        if (mark) g->marks[at / 4] = mark;
        else whole = false;
    }
    if (!whole) lds_touch_bytes(w, i, address, bytes, access);
}

static inline u8 *lds_at(Wave *w, const Inst *i, int lane, u32 address, u32 bytes, Access access) {
    if ((u64)address + bytes > w->group->lds_bytes) lds_outside(w, i, lane, address, bytes);
    lds_touch(w, i, address, bytes, access);
    return w->group->lds + address;
}

/* What is moved per lane, and how it meets the register. */
typedef enum { UBYTE, SBYTE, USHORT, SSHORT, WORDS } Unit;
typedef enum { WHOLE, LOW_HALF, HIGH_HALF } Part; /* of the register; halves keep the other half */

static inline u32 unit_bytes(Unit u) { return u <= SBYTE ? 1 : u <= SSHORT ? 2 : 4; }

static inline u32 load_unit(const u8 *p, Unit u) {
    u16 h;
    u32 x;
    switch (u) {
    case UBYTE: return *p;
    case SBYTE: return (u32)(i32)(i8)*p;
    case USHORT: memcpy(&h, p, 2); return h;
    case SSHORT: memcpy(&h, p, 2); return (u32)(i32)(i16)h;
    case WORDS: break;
    }
    memcpy(&x, p, 4);
    return x;
}

static inline void set_part(u32 *to, u32 x, Part part) {
    if (part == WHOLE) *to = x;
    else if (part == LOW_HALF) *to = (*to & 0xffff0000) | (x & 0xffff);
    else *to = (*to & 0xffff) | x << 16;
}

static inline void store_unit(u8 *p, u32 x, Unit u, Part part) {
    if (part == HIGH_HALF) x >>= 16;
    memcpy(p, &x, unit_bytes(u));
}

/* Atomic operations by name; `size` 4 or 8 bytes. Executed one at a time, so plain code does. */
typedef enum {
    A_SWAP,
    A_CMPSWAP,
    A_ADD,
    A_SUB,
    A_RSUB,
    A_SMIN,
    A_UMIN,
    A_SMAX,
    A_UMAX,
    A_AND,
    A_OR,
    A_XOR,
    A_INC,
    A_DEC,
    A_ADD_F,
    A_MIN_F,
    A_MAX_F,
    A_PK_ADD_F16,
    A_PK_ADD_BF16
} Atomic;
u64 atomic_result(Atomic op, u64 old, u64 data, u64 compare, int size);

/* A vector register by the number that memory instructions use: from 256 an accumulation one. */
static inline u32 *vreg(Wave *w, unsigned r) { return w->v[r]; }
