/* For tests and tools: the opcode list, the decoder by itself, and single waves without a kernel.
 */
#include <stdio.h>
#include <stdlib.h>
#include "emu.h"

#define API __attribute__((visibility("default")))

API int emulator_op_count(void) { return op_count(); }
API const char *emulator_op(int index, int *encoding, int *number, int *targets, int *modelled) {
    const Op *op = op_at(index);
    *encoding = op->encoding, *number = op->number, *targets = op->targets,
    *modelled = op->exec != NULL;
    return op->name;
}

/* The mnemonic at `code` and its length in words; *problem is NULL if it can be executed. */
API const char *emulator_decode(int target, const u32 *code, u64 available, int *words,
                                const char **problem) {
    Inst i;
    decode(code, available, (Target)target, &i);
    *words = i.words;
    *problem = i.problem;
    return i.op->name;
}

/* Run one wave over `code` to its s_endpgm, from and back to the given registers: 512 rows of 64
 * words, 128 scalar registers, scc. 0, or 1 with the fault's message. */
API int emulator_execute(int target, const u32 *code, u64 words, u32 *v, u32 *s, u32 *scc, u32 mode,
                         u8 *lds, u32 lds_bytes, u32 scratch_bytes, char *message, u64 *executed) {
    jmp_buf on_fault;
    Counts *counts = calloc(1, sizeof *counts);
    Module m = {.target = (Target)target,
                .image = (u8 *)code,
                .text_end = 4 * words,
                .insts = calloc(words + 1, sizeof(Inst))};
    Kernel k = {.name = "(loose code)", .module = &m};
    Group g = {.kernel = &k,
               .module = &m,
               .lds = lds,
               .lds_bytes = lds_bytes,
               .counts = counts,
               .on_fault = &on_fault,
               .message = message};
    Wave *w = aligned_alloc(64, sizeof *w);
    volatile int failed = 1; /* set after setjmp */
    for (u64 n = 0; n < words; n++) decode(code + n, words - n, m.target, m.insts + n);
    memset(w, 0, sizeof *w);
    memcpy(w->v, v, sizeof w->v);
    memcpy(w->s, s, sizeof w->s);
    w->scc = *scc, w->mode = mode, w->group = &g;
    w->next = w->inst = m.insts;
    w->scratch_bytes = scratch_bytes;
    w->scratch = calloc(LANES, scratch_bytes + 1);
    regions_lock();
    if (!setjmp(on_fault)) {
        while (w->state != FINISHED) run_wave(w, 1 << 20);
        failed = 0;
    }
    regions_unlock();
    set_flush(false);
    memcpy(v, w->v, sizeof w->v);
    memcpy(s, w->s, sizeof w->s);
    *scc = w->scc, *executed = w->executed;
    free(w->scratch), free(w), free(m.insts), free(counts);
    return failed;
}
