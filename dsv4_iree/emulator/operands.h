/* Vector operands: a row per source, with modifiers applied, and the write of the result.
 *
 * SRC_T and DST_T exist for every type T that the opcode lists name. The usual case, a plain
 * vector register, is a pointer; everything else goes through source_row() in operands.c. */
#pragma once
#include "numeric.h"

typedef enum { KIND_INT, KIND_F32, KIND_F16, KIND_I16 } Kind;

const u32 *source_row(Wave *w, const Inst *i, int n, Kind kind, u32 *room);
const u64 *source_row64(Wave *w, const Inst *i, int n, bool is_float, u64 *room);
u64 lanes_written(Wave *w, const Inst *i);
void write_row(Wave *w, unsigned reg, const u32 *d, u64 mask);
void write_result(Wave *w, const Inst *i, u32 *d, Kind kind);
void write_result16(Wave *w, const Inst *i, u32 *d, Kind kind, bool keep_high);
void write_result64(Wave *w, const Inst *i, u64 *d, bool is_float);

static inline const u32 *source(Wave *w, const Inst *i, int n, Kind kind, u32 *room) {
    unsigned r = i->src[n];
    if (__builtin_expect(i->simple && r >= VGPR0, 1)) return w->v[r - VGPR0];
    return source_row(w, i, n, kind, room);
}

static inline void result(Wave *w, const Inst *i, u32 *d, Kind kind) {
    if (__builtin_expect(i->simple && exec_mask(w) == ~0ull, 1))
        memcpy(w->v[i->dst], d, sizeof(Row));
    else write_result(w, i, d, kind);
}

/* clang-format off */
/* The type of a lane's value, of its storage, and the way between them. */
typedef float f32;
typedef double f64;
typedef float f16;
#define STORE_u32 u32
#define STORE_i32 u32
#define STORE_f32 u32
#define STORE_f16 u32
#define STORE_u16 u32
#define STORE_i16 u32
#define STORE_u64 u64
#define STORE_i64 u64
#define STORE_f64 u64

#define SRC_u32(n, room) source(w, i, n, KIND_INT, room)
#define SRC_i32(n, room) source(w, i, n, KIND_INT, room)
#define SRC_f32(n, room) source(w, i, n, KIND_F32, room)
#define SRC_f16(n, room) source(w, i, n, KIND_F16, room)
#define SRC_u16(n, room) source(w, i, n, KIND_I16, room)
#define SRC_i16(n, room) source(w, i, n, KIND_I16, room)
#define SRC_u64(n, room) source_row64(w, i, n, false, room)
#define SRC_i64(n, room) source_row64(w, i, n, false, room)
#define SRC_f64(n, room) source_row64(w, i, n, true, room)

#define LOAD_u32(x) (x)
#define LOAD_i32(x) (i32)(x)
#define LOAD_f32(x) as_f32(x)
#define LOAD_f16(x) as_f16(x)
#define LOAD_u16(x) (u16)(x)
#define LOAD_i16(x) (i16)(x)
#define LOAD_u64(x) (x)
#define LOAD_i64(x) (i64)(x)
#define LOAD_f64(x) as_f64(x)

/* Results; f16k and u16k keep the high half of the register, the other 16-bit ones clear it. */
typedef f16 f16k;
typedef u16 u16k;
#define STORE_f16k u32
#define STORE_u16k u32
#define SAVE_u32(x) (u32)(x)
#define SAVE_i32(x) (u32)(x)
#define SAVE_f32(x) from_f32(x)
#define SAVE_f16(x) from_f16(x)
#define SAVE_u16(x) (u32)(u16)(x)
#define SAVE_f16k(x) from_f16(x)
#define SAVE_u16k(x) (u32)(u16)(x)
#define SAVE_u64(x) (u64)(x)
#define SAVE_i64(x) (u64)(x)
#define SAVE_f64(x) from_f64(x)

#define DST_u32(d) result(w, i, d, KIND_INT)
#define DST_i32(d) result(w, i, d, KIND_INT)
#define DST_f32(d) result(w, i, d, KIND_F32)
#define DST_f16(d) write_result16(w, i, d, KIND_F16, false)
#define DST_u16(d) write_result16(w, i, d, KIND_I16, false)
#define DST_f16k(d) write_result16(w, i, d, KIND_F16, true)
#define DST_u16k(d) write_result16(w, i, d, KIND_I16, true)
#define DST_u64(d) write_result64(w, i, d, false)
#define DST_i64(d) write_result64(w, i, d, false)
#define DST_f64(d) write_result64(w, i, d, true)
