/* Scalar loads, buffer, global, flat and scratch accesses. Memory is instantaneous: a wait count
 * has nothing to wait for. */
#include "memory.h"

/* ---- checked global memory ---------------------------------------------------------------- */

u8 *global_slow(Wave *w, const Inst *i, int lane, u64 address, u32 bytes, Access access) {
    const Region *r = region_find(address, bytes);
    if (!r || address + bytes > r->start + r->size) {
        char where[256];
        region_nearest(address, where, sizeof where);
        fault(w, i, "lane %d %s %u bytes at 0x%llx, outside every live allocation; %s", lane,
              access == READ    ? "reads"
              : access == WRITE ? "writes"
                                : "updates",
              bytes, (unsigned long long)address, where);
    }
    w->region = r, w->region_start = r->start, w->region_end = r->start + r->size;
    return global_at(w, i, lane, address, bytes, access);
}

static void count_bytes(Wave *w, u64 read, u64 written) {
    w->group->counts->bytes_read += read;
    w->group->counts->bytes_written += written;
}

/* ---- scalar memory ------------------------------------------------------------------------ */

static u64 smem_offset(Wave *w, const Inst *i) {
    u64 offset = (u64)(i64)i->offset;
    return i->has_saddr ? offset + scalar_u32(w, i, i->saddr) : offset;
}

static void s_load(Wave *w, const Inst *i) {
    u32 words = i->op->a;
    u64 address = (pair(w->s + i->src[0]) + smem_offset(w, i)) & ~3ull;
    u32 data[16];
    memcpy(data, global_at(w, i, 0, address, 4 * words, READ), 4 * words);
    if (i->sdst + words > 125 && i->sdst != 126) fault(w, i, "loads past the scalar registers");
    memcpy(w->s + i->sdst, data, 4 * words);
    count_bytes(w, 4 * words, 0);
}

/* As s_load, through a buffer descriptor: words past num_records read 0. */
static void s_buffer_load(Wave *w, const Inst *i) {
    u32 words = i->op->a;
    const u32 *d = w->s + i->src[0];
    u64 base = (u64)(d[1] & 0xffff) << 32 | d[0], offset = smem_offset(w, i) & ~3ull;
    u64 limit = d[1] >> 16 & 0x3fff ? (u64)d[2] * (d[1] >> 16 & 0x3fff) : d[2];
    u32 data[16];
    for (u32 n = 0; n < words; n++) {
        data[n] = 0;
        if (offset + 4 * n + 4 <= limit)
            memcpy(data + n, global_at(w, i, 0, base + offset + 4 * n, 4, READ), 4);
    }
    memcpy(w->s + i->sdst, data, 4 * words);
    count_bytes(w, 4 * words, 0);
}

/* A clock that counts instructions: it moves forward, and says nothing about time. */
static void s_memtime(Wave *w, const Inst *i) { write_s64(w, i, i->sdst, w->executed); }
static void no_effect(Wave *w, const Inst *i) { (void)w, (void)i; }

/* ---- addresses of vector memory ----------------------------------------------------------- */

/* Per lane: an address, or for buffers the number of words that are in range. */
typedef struct {
    u64 at[LANES];
    u32 words_ok[LANES];
    bool checked;
} Addresses;

/* Buffer addressing. The offset within the buffer wraps at 32 bits before it is compared; the
 * scalar offset lowers the limit instead. Words of a wider access are checked one by one. Without
 * swizzling num_records counts bytes. */
static void buffer_addresses(Wave *w, const Inst *i, u32 bytes, u32 words, u64 active,
                             Addresses *a) {
    const u32 *d = w->s + i->src[0];
    u64 base = (u64)(d[1] & 0xffff) << 32 | d[0];
    u32 stride = d[1] >> 16 & 0x3fff, records = d[2];
    if (d[1] >> 31) fault(w, i, "swizzled buffers are not modelled");
    if (d[3] >> 23 & 1) fault(w, i, "buffers that add the thread id are not modelled");
    u32 scalar = scalar_u32(w, i, i->saddr);
    u64 limit = records > scalar ? records - scalar : 0;
    const u32 *index = vreg(w, i->vaddr), *offset = vreg(w, i->vaddr + (i->idxen ? 1u : 0));
    u64 clamped = 0;
    a->checked = true;
    EACH_ACTIVE (active) {
        u32 o = (i->idxen ? stride * index[l] : 0) + (i->offen ? offset[l] : 0) + (u32)i->offset;
        u32 fit = 0;
        for (u32 n = 0; n < words; n++) fit += (u64)o + 4 * n + bytes <= limit;
        a->at[l] = base + scalar + o;
        a->words_ok[l] = fit;
        clamped += fit < words;
    }
    w->group->counts->clamped_lanes += clamped;
}

static void global_addresses(Wave *w, const Inst *i, u64 active, Addresses *a) {
    u64 offset = (u64)(i64)i->offset;
    const u32 *low = vreg(w, i->vaddr), *high = vreg(w, i->vaddr + 1u);
    a->checked = false;
    if (i->has_saddr) {
        u64 base = scalar_u64(w, i, i->saddr) + offset;
        EACH_ACTIVE (active) a->at[l] = base + low[l];
    } else {
        EACH_ACTIVE (active) a->at[l] = ((u64)high[l] << 32 | low[l]) + offset;
    }
}

/* Scratch is addressed per lane from its own zero. */
static u8 *scratch_at(Wave *w, const Inst *i, int l, u32 bytes) {
    i64 o = i->offset;
    if (i->has_saddr) o += (i32)scalar_u32(w, i, i->saddr);
    if (i->has_vaddr) o += (i32)vreg(w, i->vaddr)[l];
    if (o < 0 || o + bytes > w->scratch_bytes)
        fault(w, i, "lane %d touches scratch bytes %lld..%lld of %u", l, (long long)o,
              (long long)o + bytes - 1, w->scratch_bytes);
    return w->scratch + (u64)l * w->scratch_bytes + (u64)o;
}

/* The upper half of a flat address names LDS or scratch, else memory. See scalar.c. */
static u8 *flat_at(Wave *w, const Inst *i, int l, u64 address, u32 bytes, Access access) {
    switch (address >> 32) {
    case 0x00010000: return lds_at(w, i, l, (u32)address, bytes, access);
    case 0x00020000:
        if ((address & 0xffffffff) + bytes > w->scratch_bytes)
            fault(w, i, "lane %d touches scratch byte %u of %u", l, (u32)address, w->scratch_bytes);
        return w->scratch + (u64)l * w->scratch_bytes + (u32)address;
    }
    return global_at(w, i, l, address, bytes, access);
}

static inline u8 *address_of(Wave *w, const Inst *i, const Addresses *a, int l, u32 bytes,
                             Access access) {
    switch (i->op->encoding) {
    case SCRATCH: return scratch_at(w, i, l, bytes);
    case FLAT: return flat_at(w, i, l, a->at[l], bytes, access);
    }
    return global_at(w, i, l, a->at[l], bytes, access);
}

static void find_addresses(Wave *w, const Inst *i, u32 bytes, u32 words, u64 active, Addresses *a) {
    switch (i->op->encoding) {
    case MUBUF: buffer_addresses(w, i, bytes, words, active, a); break;
    case GLOBAL:
    case FLAT: global_addresses(w, i, active, a); break;
    default: a->checked = false;
    }
}

/* ---- loads and stores --------------------------------------------------------------------- */

/* Straight into LDS: base M0 + the instruction's offset + lane * size. Lanes that are out of range
 * write zeros. Units below a word are extended to one. */
static void load_to_lds(Wave *w, const Inst *i, Unit unit, u32 words, u64 active,
                        const Addresses *a) {
    u32 base = (w->s[M0] & 0xffff) + (u32)i->offset, size = unit_bytes(unit) * words;
    EACH_ACTIVE (active) {
        u32 data[4] = {0};
        u32 fit = a->checked ? a->words_ok[l] : words;
        if (unit != WORDS && fit) data[0] = load_unit(address_of(w, i, a, l, size, READ), unit);
        else if (fit) memcpy(data, address_of(w, i, a, l, 4 * fit, READ), 4 * fit);
        memcpy(lds_at(w, i, l, base + 4 * words * (u32)l, 4 * words, WRITE), data, 4 * words);
        count_bytes(w, fit ? unit_bytes(unit) * fit : 0, 0);
    }
}

static void v_load(Wave *w, const Inst *i) {
    Unit unit = i->op->a;
    u32 words = i->op->b, size = unit_bytes(unit);
    Part part = i->op->c;
    u64 active = exec_mask(w), bytes = 0;
    Addresses a;
    find_addresses(w, i, size, words, active, &a);
    if (i->to_lds) {
        load_to_lds(w, i, unit, words, active, &a);
        return;
    }
    Row *to = &w->v[i->vdata];
    Row data[4];
    EACH_ACTIVE (active) {
        u32 fit = a.checked ? a.words_ok[l] : words;
        const u8 *p = fit ? address_of(w, i, &a, l, size * fit, READ) : NULL;
        for (u32 n = 0; n < words; n++) data[n][l] = n < fit ? load_unit(p + 4 * n, unit) : 0;
        bytes += size * fit;
    }
    for (u32 n = 0; n < words; n++) {
        if (part == WHOLE) write_row(w, i->vdata + n, data[n], active);
        else
            EACH_ACTIVE (active) set_part(&to[n][l], data[n][l], part);
    }
    if (i->op->encoding != SCRATCH) count_bytes(w, bytes, 0);
}

static void v_store(Wave *w, const Inst *i) {
    Unit unit = i->op->a;
    u32 words = i->op->b, size = unit_bytes(unit);
    Part part = i->op->c;
    u64 active = exec_mask(w), bytes = 0;
    Addresses a;
    find_addresses(w, i, size, words, active, &a);
    Row *from = &w->v[i->vdata];
    EACH_ACTIVE (active) {
        u32 fit = a.checked ? a.words_ok[l] : words;
        if (!fit) continue;
        u8 *p = address_of(w, i, &a, l, size * fit, WRITE);
        for (u32 n = 0; n < fit; n++) store_unit(p + 4 * n, from[n][l], unit, part);
        bytes += size * fit;
    }
    if (i->op->encoding != SCRATCH) count_bytes(w, 0, bytes);
}

/* ---- atomics ------------------------------------------------------------------------------ */

static u32 add_halves(u32 x, u32 y, bool bf16) {
    u32 r = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        u32 a = x >> shift & 0xffff, b = y >> shift & 0xffff;
        r |= (bf16 ? from_bf16(as_bf16(a) + as_bf16(b)) : from_f16(as_f16(a) + as_f16(b))) << shift;
    }
    return r;
}

u64 atomic_result(Atomic op, u64 old, u64 data, u64 compare, int size) {
    i64 so = size == 4 ? (i32)old : (i64)old, sd = size == 4 ? (i32)data : (i64)data;
    bool wide = size == 8;
    switch (op) {
    case A_SWAP: return data;
    case A_CMPSWAP: return old == compare ? data : old;
    case A_ADD: return old + data;
    case A_SUB: return old - data;
    case A_RSUB: return data - old;
    case A_SMIN: return so < sd ? old : data;
    case A_UMIN: return old < data ? old : data;
    case A_SMAX: return so > sd ? old : data;
    case A_UMAX: return old > data ? old : data;
    case A_AND: return old & data;
    case A_OR: return old | data;
    case A_XOR: return old ^ data;
    case A_INC: return old >= data ? 0 : old + 1;
    case A_DEC: return old == 0 || old > data ? data : old - 1;
    case A_ADD_F:
        return wide ? from_f64(as_f64(old) + as_f64(data))
                    : from_f32(as_f32((u32)old) + as_f32((u32)data));
    case A_MIN_F:
        return wide ? from_f64(min_num64(as_f64(old), as_f64(data)))
                    : from_f32(min_num(as_f32((u32)old), as_f32((u32)data)));
    case A_MAX_F:
        return wide ? from_f64(max_num64(as_f64(old), as_f64(data)))
                    : from_f32(max_num(as_f32((u32)old), as_f32((u32)data)));
    case A_PK_ADD_F16: return add_halves((u32)old, (u32)data, false);
    case A_PK_ADD_BF16: return add_halves((u32)old, (u32)data, true);
    }
    return old;
}

/* Lanes in order. Compare-and-swap takes the new value first, then the one to compare with. */
static void v_atomic(Wave *w, const Inst *i) {
    Atomic op = i->op->a;
    u32 size = i->op->b, words = size / 4;
    u64 active = exec_mask(w), bytes = 0;
    Addresses a;
    find_addresses(w, i, size, 1, active, &a);
    Row *data = &w->v[i->vdata], *to = &w->v[i->op->encoding == MUBUF ? i->vdata : i->dst];
    EACH_ACTIVE (active) {
        u64 old = 0, x = data[0][l], compare = data[words][l];
        if (words == 2) {
            x |= (u64)data[1][l] << 32;
            compare = op == A_CMPSWAP ? (u64)data[3][l] << 32 | data[2][l] : 0;
        }
        if (!a.checked || a.words_ok[l]) {
            u8 *p = address_of(w, i, &a, l, size, ATOMIC);
            memcpy(&old, p, size);
            u64 fresh = atomic_result(op, old, x, compare, (int)size);
            memcpy(p, &fresh, size);
            bytes += size;
        }
        if (i->returns) {
            to[0][l] = (u32)old;
            if (words == 2) to[1][l] = (u32)(old >> 32);
        }
    }
    count_bytes(w, bytes, bytes);
}

/* ---- the list ----------------------------------------------------------------------------- */

/* clang-format off */
#define ROW(enc, cls, on, fl, num, nm, fn, x, y, z) {.encoding = enc, .class = cls, .targets = on, \
    .flags = fl, .number = num, .name = nm, .exec = fn, .a = x, .b = y, .c = z},
#define SCALAR_LOADS(first, prefix, fn)                                          \
    ROW(SMEM, CLASS_SMEM, ON_BOTH, 0, first + 0, prefix "_dword", fn, 1, 0, 0)   \
    ROW(SMEM, CLASS_SMEM, ON_BOTH, 0, first + 1, prefix "_dwordx2", fn, 2, 0, 0) \
    ROW(SMEM, CLASS_SMEM, ON_BOTH, 0, first + 2, prefix "_dwordx4", fn, 4, 0, 0) \
    ROW(SMEM, CLASS_SMEM, ON_BOTH, 0, first + 3, prefix "_dwordx8", fn, 8, 0, 0) \
    ROW(SMEM, CLASS_SMEM, ON_BOTH, 0, first + 4, prefix "_dwordx16", fn, 16, 0, 0)

/* The same numbers serve all four kinds of vector memory. */
#define MOVES(enc, cls, p)                                                                  \
    ROW(enc, cls, ON_BOTH, 0, 16, p "_load_ubyte", v_load, UBYTE, 1, WHOLE)                 \
    ROW(enc, cls, ON_BOTH, 0, 17, p "_load_sbyte", v_load, SBYTE, 1, WHOLE)                 \
    ROW(enc, cls, ON_BOTH, 0, 18, p "_load_ushort", v_load, USHORT, 1, WHOLE)               \
    ROW(enc, cls, ON_BOTH, 0, 19, p "_load_sshort", v_load, SSHORT, 1, WHOLE)               \
    ROW(enc, cls, ON_BOTH, 0, 20, p "_load_dword", v_load, WORDS, 1, WHOLE)                 \
    ROW(enc, cls, ON_BOTH, 0, 21, p "_load_dwordx2", v_load, WORDS, 2, WHOLE)               \
    ROW(enc, cls, ON_BOTH, 0, 22, p "_load_dwordx3", v_load, WORDS, 3, WHOLE)               \
    ROW(enc, cls, ON_BOTH, 0, 23, p "_load_dwordx4", v_load, WORDS, 4, WHOLE)               \
    ROW(enc, cls, ON_BOTH, 0, 24, p "_store_byte", v_store, UBYTE, 1, WHOLE)                \
    ROW(enc, cls, ON_BOTH, 0, 25, p "_store_byte_d16_hi", v_store, UBYTE, 1, HIGH_HALF)     \
    ROW(enc, cls, ON_BOTH, 0, 26, p "_store_short", v_store, USHORT, 1, WHOLE)              \
    ROW(enc, cls, ON_BOTH, 0, 27, p "_store_short_d16_hi", v_store, USHORT, 1, HIGH_HALF)   \
    ROW(enc, cls, ON_BOTH, 0, 28, p "_store_dword", v_store, WORDS, 1, WHOLE)               \
    ROW(enc, cls, ON_BOTH, 0, 29, p "_store_dwordx2", v_store, WORDS, 2, WHOLE)             \
    ROW(enc, cls, ON_BOTH, 0, 30, p "_store_dwordx3", v_store, WORDS, 3, WHOLE)             \
    ROW(enc, cls, ON_BOTH, 0, 31, p "_store_dwordx4", v_store, WORDS, 4, WHOLE)             \
    ROW(enc, cls, ON_BOTH, 0, 32, p "_load_ubyte_d16", v_load, UBYTE, 1, LOW_HALF)          \
    ROW(enc, cls, ON_BOTH, 0, 33, p "_load_ubyte_d16_hi", v_load, UBYTE, 1, HIGH_HALF)      \
    ROW(enc, cls, ON_BOTH, 0, 34, p "_load_sbyte_d16", v_load, SBYTE, 1, LOW_HALF)          \
    ROW(enc, cls, ON_BOTH, 0, 35, p "_load_sbyte_d16_hi", v_load, SBYTE, 1, HIGH_HALF)      \
    ROW(enc, cls, ON_BOTH, 0, 36, p "_load_short_d16", v_load, USHORT, 1, LOW_HALF)         \
    ROW(enc, cls, ON_BOTH, 0, 37, p "_load_short_d16_hi", v_load, USHORT, 1, HIGH_HALF)

#define ATOMIC_ROW_ON(on, enc, num, nm, op, size) \
    ROW(enc, CLASS_GLOBAL, on, IS_ATOMIC, num, nm, v_atomic, op, size, 0)
#define ATOMIC_ROW(enc, num, nm, op, size) ATOMIC_ROW_ON(ON_BOTH, enc, num, nm, op, size)
#define ATOMIC_PAIR(enc, num, nm, op)                                       \
    ATOMIC_ROW(enc, num, nm, op, 4) ATOMIC_ROW(enc, num + 32, nm "_x2", op, 8)
#define ATOMICS(enc, p)                                                     \
    ATOMIC_PAIR(enc, 64, p "_atomic_swap", A_SWAP)                          \
    ATOMIC_PAIR(enc, 65, p "_atomic_cmpswap", A_CMPSWAP)                    \
    ATOMIC_PAIR(enc, 66, p "_atomic_add", A_ADD)                            \
    ATOMIC_PAIR(enc, 67, p "_atomic_sub", A_SUB)                            \
    ATOMIC_PAIR(enc, 68, p "_atomic_smin", A_SMIN)                          \
    ATOMIC_PAIR(enc, 69, p "_atomic_umin", A_UMIN)                          \
    ATOMIC_PAIR(enc, 70, p "_atomic_smax", A_SMAX)                          \
    ATOMIC_PAIR(enc, 71, p "_atomic_umax", A_UMAX)                          \
    ATOMIC_PAIR(enc, 72, p "_atomic_and", A_AND)                            \
    ATOMIC_PAIR(enc, 73, p "_atomic_or", A_OR)                              \
    ATOMIC_PAIR(enc, 74, p "_atomic_xor", A_XOR)                            \
    ATOMIC_PAIR(enc, 75, p "_atomic_inc", A_INC)                            \
    ATOMIC_PAIR(enc, 76, p "_atomic_dec", A_DEC)                            \
    ATOMIC_ROW(enc, 77, p "_atomic_add_f32", A_ADD_F, 4)                    \
    ATOMIC_ROW(enc, 78, p "_atomic_pk_add_f16", A_PK_ADD_F16, 4)            \
    ATOMIC_ROW(enc, 79, p "_atomic_add_f64", A_ADD_F, 8)                    \
    ATOMIC_ROW(enc, 80, p "_atomic_min_f64", A_MIN_F, 8)                    \
    ATOMIC_ROW(enc, 81, p "_atomic_max_f64", A_MAX_F, 8)

#define TO_LDS(enc, p)                                                                      \
    ROW(enc, CLASS_GLOBAL, ON_BOTH, 0, 38, p "_load_lds_ubyte", v_load, UBYTE, 1, WHOLE)    \
    ROW(enc, CLASS_GLOBAL, ON_BOTH, 0, 39, p "_load_lds_sbyte", v_load, SBYTE, 1, WHOLE)    \
    ROW(enc, CLASS_GLOBAL, ON_BOTH, 0, 40, p "_load_lds_ushort", v_load, USHORT, 1, WHOLE)  \
    ROW(enc, CLASS_GLOBAL, ON_BOTH, 0, 41, p "_load_lds_sshort", v_load, SSHORT, 1, WHOLE)  \
    ROW(enc, CLASS_GLOBAL, ON_BOTH, 0, 42, p "_load_lds_dword", v_load, WORDS, 1, WHOLE)

const Op memory_ops[] = {
    SCALAR_LOADS(0, "s_load", s_load)
    SCALAR_LOADS(8, "s_buffer_load", s_buffer_load)
    ROW(SMEM, CLASS_SYNC, ON_BOTH, 0, 32, "s_dcache_inv", no_effect, 0, 0, 0)
    ROW(SMEM, CLASS_SYNC, ON_BOTH, 0, 33, "s_dcache_wb", no_effect, 0, 0, 0)
    ROW(SMEM, CLASS_SMEM, ON_BOTH, 0, 36, "s_memtime", s_memtime, 0, 0, 0)
    ROW(SMEM, CLASS_SMEM, ON_BOTH, 0, 37, "s_memrealtime", s_memtime, 0, 0, 0)
    MOVES(MUBUF, CLASS_GLOBAL, "buffer")
    ATOMICS(MUBUF, "buffer")
    ROW(MUBUF, CLASS_SYNC, ON_BOTH, 0, 40, "buffer_wbl2", no_effect, 0, 0, 0)
    ROW(MUBUF, CLASS_SYNC, ON_BOTH, 0, 41, "buffer_inv", no_effect, 0, 0, 0)
    ATOMIC_ROW_ON(ON_950, MUBUF, 82, "buffer_atomic_pk_add_bf16", A_PK_ADD_BF16, 4)
    MOVES(FLAT, CLASS_GLOBAL, "flat")
    ATOMICS(FLAT, "flat")
    ATOMIC_ROW(FLAT, 82, "flat_atomic_pk_add_bf16", A_PK_ADD_BF16, 4)
    MOVES(GLOBAL, CLASS_GLOBAL, "global")
    ATOMICS(GLOBAL, "global")
    ATOMIC_ROW(GLOBAL, 82, "global_atomic_pk_add_bf16", A_PK_ADD_BF16, 4)
    TO_LDS(GLOBAL, "global")
    ROW(GLOBAL, CLASS_GLOBAL, ON_950, 0, 125, "global_load_lds_dwordx4", v_load, WORDS, 4, WHOLE)
    ROW(GLOBAL, CLASS_GLOBAL, ON_950, 0, 126, "global_load_lds_dwordx3", v_load, WORDS, 3, WHOLE)
    MOVES(SCRATCH, CLASS_SCRATCH, "scratch")
};
const int num_memory_ops = sizeof memory_ops / sizeof *memory_ops;
