/* Machine code to instructions. Decoding never fails: what cannot be understood becomes an
 * instruction that faults when, and only when, it is reached. */
#include <pthread.h>
#include <stdio.h>
#include "emu.h"

/* ---- the opcode tables by encoding and number --------------------------------------------- */

enum { NUMBERS = 1024 };
static const Op *all_ops[MAX_OPS];
static int num_ops;
static u16 op_index[NUM_ENCODINGS][NUMBERS]; /* index + 1 into all_ops, 0 for none */

static void add_ops(const Op *ops, int count) {
    for (int n = 0; n < count; n++) {
        u16 *slot = &op_index[ops[n].encoding][ops[n].number];
        if (*slot) continue; /* named_ops comes last and must not hide a meaning */
        all_ops[num_ops] = ops + n;
        *slot = (u16)++num_ops;
    }
}

static void fill_tables(void) {
    add_ops(scalar_ops, num_scalar_ops);
    add_ops(vector_ops, num_vector_ops);
    add_ops(convert_ops, num_convert_ops);
    add_ops(compare_ops, num_compare_ops);
    add_ops(packed_ops, num_packed_ops);
    add_ops(matrix_ops, num_matrix_ops);
    add_ops(memory_ops, num_memory_ops);
    add_ops(lds_ops, num_lds_ops);
    add_ops(named_ops, num_named_ops);
}

static void ready(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_tables);
}
int op_count(void) {
    ready();
    return num_ops;
}
const Op *op_at(int index) {
    ready();
    return all_ops[index];
}

/* Names that the assembler knows and this interpreter does not model: for messages, and so that
 * lengths are right. */
#define NAMED(enc, num, nm, on) {.encoding = enc, .number = num, .name = #nm, .targets = on},
const Op named_ops[] = {
#include "named_ops.h"
};
const int num_named_ops = sizeof named_ops / sizeof *named_ops;

static void refuse(Wave *w, const Inst *i) { fault(w, i, "%s", i->problem); }

static void set_op(Inst *i, Encoding encoding, u32 number, Target target) {
    static const Op unknown = {.name = "(unknown)"};
    int index = number < NUMBERS ? op_index[encoding][number] : 0;
    i->op = index ? all_ops[index - 1] : &unknown;
    i->index = (u16)(index ? index - 1 : 0);
    i->exec = i->op->exec;
    if (!index) i->problem = "unknown opcode";
    else if (!(i->op->targets >> target & 1)) i->problem = "this target has no such instruction";
    else if (!i->exec) i->problem = "this instruction is not modelled";
}

/* ---- one function per encoding ------------------------------------------------------------ */

static u32 bits(u32 word, int from, int count) { return word >> from & ((1u << count) - 1); }

/* A 32-bit literal follows if any of the sources says so. */
static void take_literal(Inst *i, unsigned sources) {
    for (unsigned n = 0; n < sources; n++)
        if (i->src[n] == LITERAL) i->literal = i->word[1], i->words = 2;
}

static void decode_sop(Inst *i, Target t) {
    u32 w = i->word[0];
    i->words = 1;
    i->sdst = (u16)bits(w, 16, 7);
    i->src[0] = (u16)bits(w, 0, 8);
    if (bits(w, 23, 9) == 0x17d) {
        set_op(i, SOP1, bits(w, 8, 8), t);
        take_literal(i, 1);
    } else if (bits(w, 23, 9) == 0x17e) {
        i->src[1] = (u16)bits(w, 8, 8);
        set_op(i, SOPC, bits(w, 16, 7), t);
        take_literal(i, 2);
    } else if (bits(w, 23, 9) == 0x17f) {
        i->literal = (u32)(i32)(i16)w;
        set_op(i, SOPP, bits(w, 16, 7), t);
    } else if (bits(w, 28, 4) == 0xb) {
        i->literal = (u32)(i32)(i16)w;
        set_op(i, SOPK, bits(w, 23, 5), t);
        if (bits(w, 23, 5) == 20) i->words = 2; /* s_setreg_imm32_b32 carries its value */
    } else {
        i->src[1] = (u16)bits(w, 8, 8);
        set_op(i, SOP2, bits(w, 23, 7), t);
        take_literal(i, 2);
    }
}

static void decode_smem(Inst *i, Target t) {
    u32 w = i->word[0], x = i->word[1];
    bool immediate = bits(w, 17, 1), register_too = bits(w, 14, 1);
    i->words = 2;
    i->src[0] = (u16)(2 * bits(w, 0, 6));
    i->sdst = (u16)bits(w, 6, 7);
    i->offset = immediate ? (i32)(x << 11) >> 11 : 0;
    i->has_saddr = !immediate || register_too;
    i->saddr = (u16)(register_too ? bits(x, 25, 7) : bits(x, 0, 7));
    set_op(i, SMEM, bits(w, 18, 8), t);
}

static void decode_dpp(Inst *i) {
    u32 x = i->word[1];
    i->words = 2;
    i->dpp = true;
    i->src[0] = (u16)(VGPR0 + bits(x, 0, 8));
    i->dpp_ctrl = (u16)bits(x, 8, 9);
    i->bound_ctrl = bits(x, 19, 1);
    i->neg = (u8)(bits(x, 20, 1) | bits(x, 22, 1) << 1);
    i->abs = (u8)(bits(x, 21, 1) | bits(x, 23, 1) << 1);
    i->bank_mask = (u8)bits(x, 24, 4);
    i->row_mask = (u8)bits(x, 28, 4);
}

static void decode_sdwa(Inst *i, bool is_compare) {
    u32 x = i->word[1];
    i->words = 2;
    i->sdwa = true;
    i->src[0] = (u16)(bits(x, 0, 8) + (bits(x, 23, 1) ? 0 : VGPR0));
    if (bits(x, 31, 1)) i->src[1] = (u16)(i->src[1] - VGPR0);
    i->sel[0] = (u8)bits(x, 16, 3), i->sel[1] = (u8)bits(x, 24, 3);
    i->sext = (u8)(bits(x, 19, 1) | bits(x, 27, 1) << 1);
    i->neg = (u8)(bits(x, 20, 1) | bits(x, 28, 1) << 1);
    i->abs = (u8)(bits(x, 21, 1) | bits(x, 29, 1) << 1);
    i->dst_sel = 6;
    if (is_compare) {
        if (bits(x, 15, 1)) i->sdst = (u16)bits(x, 8, 7);
        return;
    }
    i->dst_sel = (u8)bits(x, 8, 3);
    i->dst_unused = (u8)bits(x, 11, 2);
    i->clamp = bits(x, 13, 1);
    i->omod = (u8)bits(x, 14, 2);
}

enum { FMAMK = VOP2_BASE + 23, FMAAK = VOP2_BASE + 24, MADMK_F16 = VOP2_BASE + 36, MADAK_F16 };

/* VOP1, VOP2 and VOPC: one word, and one more for a literal, DPP or SDWA. VCC is implied. */
static void decode_vop(Inst *i, Target t) {
    u32 w = i->word[0], op6 = bits(w, 25, 6);
    bool is_compare = op6 == 0x3e;
    i->words = 1;
    i->src[0] = (u16)bits(w, 0, 9);
    i->src[1] = (u16)(VGPR0 + bits(w, 9, 8));
    i->src[2] = i->sdst = VCC;
    i->dst = (u16)bits(w, 17, 8);
    if (is_compare) {
        set_op(i, VOP, bits(w, 17, 8), t);
    } else if (op6 == 0x3f) {
        i->src[1] = 128; /* there is none: the constant 0 */
        set_op(i, VOP, VOP1_BASE + bits(w, 9, 8), t);
    } else {
        set_op(i, VOP, VOP2_BASE + op6, t);
        u32 n = VOP2_BASE + op6;
        if (n == FMAMK) i->src[2] = i->src[1], i->src[1] = LITERAL;
        if (n == FMAAK) i->src[2] = LITERAL;
        if (n == FMAMK || n == FMAAK || n == MADMK_F16 || n == MADAK_F16)
            i->literal = i->word[1], i->words = 2;
    }
    if (i->src[0] == 250) decode_dpp(i);
    else if (i->src[0] == 249) decode_sdwa(i, is_compare);
    else take_literal(i, 1);
}

static void decode_vop3(Inst *i, Target t) {
    u32 w = i->word[0], x = i->word[1], number = bits(w, 16, 10);
    i->words = 2;
    set_op(i, VOP, number, t);
    for (int n = 0; n < 3; n++) i->src[n] = (u16)bits(x, 9 * n, 9);
    i->dst = (u16)bits(w, 0, 8);
    i->neg = (u8)bits(x, 29, 3);
    i->omod = (u8)bits(x, 27, 2);
    i->clamp = bits(w, 15, 1);
    i->sdst = i->dst;
    if (number >= 256 && i->op->flags & HAS_SDST) {
        i->sdst = (u16)bits(w, 8, 7);
    } else {
        i->abs = (u8)bits(w, 8, 3);
        i->op_sel = (u8)bits(w, 11, 4);
    }
    for (int n = 0; n < 3; n++)
        if (i->src[n] == LITERAL) i->problem = "a literal in VOP3";
}

static void decode_mfma_modifiers(Inst *i, u32 w, u32 x) {
    if (i->src[0] >= VGPR0 && bits(x, 27, 1)) i->src[0] += 256;
    if (i->src[1] >= VGPR0 && bits(x, 28, 1)) i->src[1] += 256;
    if (bits(w, 15, 1)) {
        i->dst += 256;
        if (i->src[2] >= VGPR0) i->src[2] += 256;
    }
    i->literal = bits(w, 8, 3) | bits(w, 11, 4) << 4 | bits(x, 29, 3) << 8; /* cbsz, abid, blgp */
}

static void decode_vop3p(Inst *i, Target t) {
    u32 w = i->word[0], x = i->word[1], number = bits(w, 16, 7);
    enum { SCALE_PREFIX = 44 };
    i->words = 2;
    if (number == SCALE_PREFIX) {
        /* The first half holds the scales and which byte of them, the second the instruction. */
        i->words = 4;
        i->saddr = (u16)bits(x, 0, 9), i->vaddr = (u16)bits(x, 9, 9);
        i->sel[0] = (u8)(bits(w, 11, 1) | bits(x, 27, 1) << 1);
        i->sel[1] = (u8)(bits(w, 12, 1) | bits(x, 28, 1) << 1);
        w = i->word[2], x = i->word[3];
    }
    for (int n = 0; n < 3; n++) i->src[n] = (u16)bits(x, 9 * n, 9);
    i->dst = (u16)bits(w, 0, 8);
    if (number == SCALE_PREFIX) {
        set_op(i, VOP3PX, bits(w, 16, 7), t);
        if (bits(w, 23, 9) != 0x1a7) i->problem = "a scale prefix before another encoding";
        decode_mfma_modifiers(i, w & ~(0xfu << 11), x); /* abid has no meaning here */
        return;
    }
    set_op(i, VOP3P, number, t);
    if (i->op->class == CLASS_MFMA && i->op->exec) {
        decode_mfma_modifiers(i, w, x);
        return;
    }
    i->neg = (u8)bits(x, 29, 3);
    i->neg_hi = (u8)bits(w, 8, 3);
    i->op_sel = (u8)bits(w, 11, 3);
    i->op_sel_hi = (u8)(bits(x, 27, 2) | bits(w, 14, 1) << 2);
    i->clamp = bits(w, 15, 1);
}

static void decode_ds(Inst *i, Target t) {
    u32 w = i->word[0], x = i->word[1];
    u16 acc = bits(w, 25, 1) ? 256 : 0;
    i->words = 2;
    i->offset = (i32)bits(w, 0, 16);
    i->offset2 = (i32)bits(w, 8, 8);
    i->vaddr = (u16)bits(x, 0, 8);
    i->vdata = (u16)(bits(x, 8, 8) + acc);
    i->vdata2 = (u16)(bits(x, 16, 8) + acc);
    i->dst = (u16)(bits(x, 24, 8) + acc);
    set_op(i, DS, bits(w, 17, 8), t);
    if (bits(w, 16, 1)) i->problem = "global data share is not modelled";
}

static void decode_mubuf(Inst *i, Target t) {
    u32 w = i->word[0], x = i->word[1];
    i->words = 2;
    i->offset = (i32)bits(w, 0, 12);
    i->offen = bits(w, 12, 1);
    i->idxen = bits(w, 13, 1);
    i->returns = bits(w, 14, 1);
    i->to_lds = bits(w, 16, 1);
    i->vaddr = (u16)bits(x, 0, 8);
    i->vdata = (u16)(bits(x, 8, 8) + (bits(x, 23, 1) ? 256 : 0));
    i->src[0] = (u16)(4 * bits(x, 16, 5));
    i->saddr = (u16)bits(x, 24, 8);
    set_op(i, MUBUF, bits(w, 18, 7), t);
    if (i->saddr == LITERAL) i->problem = "a literal as a buffer's scalar offset";
}

static void decode_flat(Inst *i, Target t) {
    u32 w = i->word[0], x = i->word[1], number = bits(w, 18, 7);
    static const Encoding segments[] = {FLAT, SCRATCH, GLOBAL, GLOBAL};
    Encoding segment = segments[bits(w, 14, 2)];
    u16 acc = bits(x, 23, 1) ? 256 : 0;
    i->words = 2;
    i->offset = (i32)(w << 19) >> 19;
    i->has_vaddr = bits(w, 13, 1);
    i->saddr = (u16)bits(x, 16, 7);
    i->has_saddr = segment != FLAT && i->saddr != 0x7f;
    i->returns = bits(w, 16, 1);
    i->vaddr = (u16)bits(x, 0, 8);
    i->dst = (u16)(bits(x, 24, 8) + acc);
    bool is_load = number < 24 || (number >= 32 && number < 43);
    i->vdata = is_load ? i->dst : (u16)(bits(x, 8, 8) + acc);
    set_op(i, segment, number, t);
    i->to_lds = strstr(i->op->name, "_lds_") != NULL;
    if (segment != SCRATCH && i->has_vaddr) i->problem = "reserved bit 13";
    if (bits(w, 14, 2) == 3) i->problem = "reserved segment";
}

void decode(const u32 *code, size_t available, Target t, Inst *i) {
    ready();
    memset(i, 0, sizeof *i);
    for (size_t n = 0; n < 4 && n < available; n++) i->word[n] = code[n];
    u32 w = i->word[0];
    if (!(w >> 31)) decode_vop(i, t);
    else if (w >> 30 == 2) decode_sop(i, t);
    else if (w >> 26 == 0x30) decode_smem(i, t);
    else if (w >> 23 == 0x1a7) decode_vop3p(i, t);
    else if (w >> 26 == 0x34) decode_vop3(i, t);
    else if (w >> 26 == 0x36) decode_ds(i, t);
    else if (w >> 26 == 0x37) decode_flat(i, t);
    else if (w >> 26 == 0x38) decode_mubuf(i, t);
    else {
        set_op(i, SOP2, NUMBERS, t);
        i->words = 2;
        i->problem = "unknown encoding";
    }
    if (i->words > available) i->problem = "the code ends within this instruction";
    i->simple = !(i->abs | i->neg | i->op_sel | i->omod | i->clamp | i->dpp | i->sdwa);
    if (i->problem) i->exec = refuse;
}
