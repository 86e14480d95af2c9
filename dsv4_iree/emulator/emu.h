/* What every stage shares: the decoded instruction, the wave, the workgroup, faults, counts.
 *
 * A wave is 64 lanes. A vector register is a row of 64 words, one per lane; accumulation
 * registers a0..a255 are rows 256..511 behind v0..v255. Numbers of operands are those of the
 * encoding: 0..127 scalar registers, 128..255 constants, from 256 vector registers; accumulation
 * registers, which some encodings select by a bit of their own, follow from 512. */
#pragma once
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

enum { LANES = 64, MAX_OPS = 2048, MAX_ARGS = 128, MAX_WAVES = 16, NAME_BYTES = 256 };
enum { VCC = 106, M0 = 124, EXEC = 126, LITERAL = 255, VGPR0 = 256, AGPR0 = 512 };

typedef u32 Row[LANES] __attribute__((aligned(64)));
typedef u64 Row64[LANES] __attribute__((aligned(64)));

typedef enum { GFX942, GFX950, NUM_TARGETS } Target;
enum { ON_942 = 1 << GFX942, ON_950 = 1 << GFX950, ON_BOTH = ON_942 | ON_950 };

typedef enum {
    SOP2,
    SOPK,
    SOP1,
    SOPC,
    SOPP,
    SMEM,
    VOP, /* VOPC, VOP1, VOP2 and VOP3 share one numbering: VOP3's */
    VOP3P,
    VOP3PX, /* VOP3P behind a scale prefix, 16 bytes */
    DS,
    MUBUF,
    FLAT,
    GLOBAL,
    SCRATCH,
    NUM_ENCODINGS
} Encoding;

/* Where VOP1 and VOP2 numbers lie in the numbering of VOP3. */
enum { VOP2_BASE = 0x100, VOP1_BASE = 0x140 };

typedef enum {
    CLASS_MFMA,
    CLASS_VALU,
    CLASS_SALU,
    CLASS_SMEM,
    CLASS_LDS,
    CLASS_GLOBAL,
    CLASS_SCRATCH,
    CLASS_BRANCH,
    CLASS_SYNC,
    NUM_CLASSES
} Class;

typedef struct Wave Wave;
typedef struct Inst Inst;
typedef void Exec(Wave *w, const Inst *i);

enum { HAS_SDST = 1, IS_ATOMIC = 2 };

/* One row of an opcode table. `a`, `b`, `c` are for the handler: a size, a format, an operation. */
typedef struct {
    u8 encoding, class, targets, flags;
    u16 number;
    const char *name;
    Exec *exec; /* NULL: the name is known, the meaning is not modelled */
    u16 a, b, c;
} Op;

struct Inst {
    Exec *exec;
    const Op *op;
    u16 index; /* of op, for the counts */
    u16 words; /* length in 32-bit words */
    u16 src[3], dst, sdst;
    bool simple; /* vector operands as they are: no modifier, no DPP, no SDWA */
    u8 abs, neg, neg_hi, op_sel, op_sel_hi, omod;
    bool clamp;
    bool dpp, sdwa, bound_ctrl;
    u16 dpp_ctrl;
    u8 row_mask, bank_mask;
    u8 sel[2], sext, dst_sel, dst_unused;
    bool offen, idxen, returns, to_lds, has_saddr, has_vaddr;
    u16 saddr, vaddr, vdata, vdata2;
    i32 offset, offset2;
    u32 literal;
    u32 word[4];
    const char *problem; /* why this encoding is refused when it is reached */
};

typedef struct {
    u64 start, size;
    const char *what;
    u8 *read_map, *write_map; /* one bit per byte touched, only while distinct bytes are counted */
} Region;

typedef struct {
    char name[NAME_BYTES];
    struct Module *module;
    u64 entry; /* offset of the first instruction in the image */
    u32 lds_bytes, scratch_bytes, kernarg_bytes, num_vgprs, accum_offset, mode;
    u32 rsrc2, properties, preload;
    int num_args;
    struct {
        u32 offset, size;
        u16 hidden;
    } args[MAX_ARGS];
} Kernel;

typedef struct Module {
    Target target;
    u8 *file; /* a copy of the code object */
    u8 *image;
    u64 image_bytes, text_start, text_end;
    Inst *insts; /* one per word of text */
    int num_kernels;
    Kernel *kernels;
    bool has_global_atomics;
} Module;

/* Numbers that a dispatch adds up. */
typedef struct {
    u64 executed[MAX_OPS];
    u64 bytes_read, bytes_written, clamped_lanes, barriers, waves;
    u64 wide_f8f6f4; /* those of f8f6f4 that have an operand of 8-bit elements: half the rate */
} Counts;

/* Who touched a word of LDS since the last barrier. The mark is the epoch (a count of barriers)
 * and one of: only read, by wave n - 1 or by several; only written, by wave n - 1; or that the
 * owners byte by byte say more. An owner byte is 0 nobody, wave + 1, or 255 for several. */
enum {
    MARK_BITS = 8,
    MARK_READ_BY_SEVERAL = 0x40,
    MARK_WRITTEN = 0x80,
    MARK_BYTES = 0xff,
    MOST_EPOCHS = 1 << 24
};
typedef struct {
    u32 writer, reader, atomic;
} Owners;

/* One workgroup being executed by one thread. */
typedef struct Group {
    const struct Launch *launch;
    const Kernel *kernel;
    const Module *module;
    u32 id[3];
    u8 *lds;
    u32 lds_bytes;
    u32 *marks; /* per word of LDS; NULL: races are not looked for */
    Owners *owners;
    u32 epoch;
    Counts *counts;
    jmp_buf *on_fault;
    char *message; /* MESSAGE_BYTES, filled by fault() */
} Group;

enum { MESSAGE_BYTES = 2048 };
typedef enum { RUNNING, AT_BARRIER, FINISHED } State;

struct Wave {
    Row v[512];
    u32 s[128] __attribute__((aligned(64)));
    u32 scc;
    u32 mode;         /* the MODE register */
    const Inst *inst; /* being executed */
    const Inst *next;
    State state;
    u32 number; /* within the workgroup */
    Group *group;
    u8 *scratch;
    u32 scratch_bytes;            /* per lane */
    u64 region_start, region_end; /* the allocation that was hit last */
    const Region *region;
    u64 executed;
};

typedef struct Launch {
    const Kernel *kernel;
    u32 grid[3], block[3];
    u8 *kernargs;
    u32 dynamic_lds;
    u8 packet[64]; /* the dispatch packet some kernels ask for */
} Launch;

/* Settings that tests and users change. */
typedef struct {
    u64 seed;
    u64 instruction_limit; /* per wave */
    int threads;
    bool check_races, count_distinct;
} Settings;
extern Settings settings;

static inline u64 pair(const u32 *s) { return (u64)s[1] << 32 | s[0]; }
static inline void set_pair(u32 *s, u64 x) { s[0] = (u32)x, s[1] = (u32)(x >> 32); }
static inline u64 exec_mask(const Wave *w) { return pair(w->s + EXEC); }
#define EACH_LANE for (int l = 0; l < LANES; l++)
#define EACH_ACTIVE(mask)                               \
    for (u64 rest_ = (mask); rest_; rest_ &= rest_ - 1) \
        for (int l = __builtin_ctzll(rest_), once_ = 1; once_; once_ = 0)

/* elf.c */
#define UNKNOWN_BYTES (~0ull)
Module *module_load(const void *data, u64 bytes, Target device, char *message);
void module_free(Module *m);
extern const char *const target_names[NUM_TARGETS];

/* decode.c */
void decode(const u32 *code, size_t words, Target target, Inst *out);
const Op *op_at(int index);
int op_count(void);
extern const Op scalar_ops[], vector_ops[], convert_ops[], compare_ops[], packed_ops[],
    matrix_ops[], memory_ops[], lds_ops[], named_ops[];
extern const int num_scalar_ops, num_vector_ops, num_convert_ops, num_compare_ops, num_packed_ops,
    num_matrix_ops, num_memory_ops, num_lds_ops, num_named_ops;

/* scalar.c */
u32 scalar_u32(Wave *w, const Inst *i, unsigned operand);
u64 scalar_u64(Wave *w, const Inst *i, unsigned operand);
u64 scalar_f64(Wave *w, const Inst *i, unsigned operand);
u32 scalar_f16(Wave *w, const Inst *i, unsigned operand);
void write_s32(Wave *w, const Inst *i, unsigned reg, u32 x);
void write_s64(Wave *w, const Inst *i, unsigned reg, u64 x);

/* launch.c */
void fault(Wave *w, const Inst *i, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void enter_mode(Wave *w);
int launch(const Launch *l, char *message);
void run_wave(Wave *w, u64 budget);
u32 poison(u64 seed);

/* regions.c */
void region_add(const void *start, u64 size, const char *what);
bool region_remove(const void *start);
const Region *region_find(u64 address, u64 bytes);
void region_nearest(u64 address, char *out, size_t bytes);
void regions_lock(void);
void regions_unlock(void);
void regions_count_distinct(bool on);
void regions_distinct(u64 *read, u64 *written);

/* stats.c */
void stats_add(const Launch *l, const Counts *c, u64 groups, double seconds);

/* matrix.c */
void set_flush(bool on);
