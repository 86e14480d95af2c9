/* Workgroups and waves: their first registers, their interleaving, barriers, faults. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "emu.h"

Settings settings = {.seed = 0, .instruction_limit = 2000000000, .threads = 2, .check_races = true};

/* ---- faults ------------------------------------------------------------------------------- */

/* End the whole dispatch with a message; the process, and the device, live on. */
void fault(Wave *w, const Inst *i, const char *format, ...) {
    const Group *g = w->group;
    const Module *m = g->module;
    i = w->inst; /* a handler may have passed an altered copy */
    u64 pc = 4 * (u64)(i - m->insts) + m->text_start;
    i64 in_kernel = (i64)pc - (i64)g->kernel->entry;
    char what[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    int n = snprintf(g->message, MESSAGE_BYTES, "kernel %s (%s), pc 0x%llx (entry %c 0x%llx), %s [",
                     g->kernel->name, target_names[m->target], (unsigned long long)pc,
                     in_kernel < 0 ? '-' : '+', (unsigned long long)llabs(in_kernel), i->op->name);
    for (int k = 0; k < i->words && k < 4; k++)
        n += snprintf(g->message + n, (size_t)(MESSAGE_BYTES - n), "%s%08x", k ? " " : "",
                      i->word[k]);
    snprintf(g->message + n, (size_t)(MESSAGE_BYTES - n), "], workgroup (%u, %u, %u) wave %u: %s",
             g->id[0], g->id[1], g->id[2], w->number, what);
    longjmp(*g->on_fault, 1);
}

/* ---- randomness --------------------------------------------------------------------------- */

static u64 mixed(u64 x) { /* a finaliser with full avalanche */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static u32 next_random(u64 *state) {
    *state += 0x9e3779b97f4a7c15ull;
    return (u32)(mixed(*state) >> 32);
}

/* A NaN in every float format that fits the word, and a far address; differs between seeds. */
u32 poison(u64 seed) { return 0x7ff17ff1u | (u32)(mixed(seed) & 0x000e000e); }

static void fill(void *to, u32 word, size_t bytes) {
    u32 *p = to;
    for (size_t n = 0; n < bytes / 4; n++) p[n] = word;
}

/* ---- starting waves ----------------------------------------------------------------------- */

enum { ROUND_NEAREST = 0, DENORMALS_ON = 3 };

/* Let the host's arithmetic follow the wave's MODE register. */
void enter_mode(Wave *w) {
    u32 mode = w->mode, denormals = mode >> 4 & 3;
    if ((mode & 15) != ROUND_NEAREST) fault(w, w->inst, "a rounding mode other than to nearest");
    if (denormals == 1 || denormals == 2) fault(w, w->inst, "flushing only inputs or only outputs");
    if ((mode >> 6 & 3) != DENORMALS_ON) fault(w, w->inst, "flushing 16- and 64-bit subnormals");
    set_flush(denormals != DENORMALS_ON);
}

/* The scalar registers a wave starts with, in the order the ABI lays down. */
static void start_scalars(Wave *w, const Group *g) {
    const Kernel *k = g->kernel;
    const Launch *l = g->launch;
    enum {
        SEGMENT_BUFFER = 1,
        DISPATCH_PTR = 2,
        QUEUE_PTR = 4,
        KERNARG_PTR = 8,
        DISPATCH_ID = 16,
        FLAT_SCRATCH = 32,
        SEGMENT_SIZE = 64
    };
    u32 *s = w->s, n = 0;
    if (k->properties & SEGMENT_BUFFER) n += 4;
    if (k->properties & DISPATCH_PTR) set_pair(s + n, (u64)l->packet), n += 2;
    if (k->properties & QUEUE_PTR) n += 2;
    if (k->properties & KERNARG_PTR) set_pair(s + n, (u64)l->kernargs), n += 2;
    if (k->properties & DISPATCH_ID) n += 2;
    if (k->properties & FLAT_SCRATCH) n += 2;
    if (k->properties & SEGMENT_SIZE) s[n++] = k->scratch_bytes;
    memcpy(s + n, l->kernargs + 4 * (k->preload >> 7), 4 * (k->preload & 127));
    n = k->rsrc2 >> 1 & 31;
    for (int axis = 0; axis < 3; axis++)
        if (k->rsrc2 >> (7 + axis) & 1) s[n++] = g->id[axis];
}

static void start_wave(Wave *w, Group *g, u32 number, u8 *scratch) {
    const Kernel *k = g->kernel;
    const u32 *block = g->launch->block;
    u32 threads = block[0] * block[1] * block[2], bad = poison(settings.seed);
    u32 here = threads - LANES * number < LANES ? threads - LANES * number : LANES;
    u32 acc = k->num_vgprs > k->accum_offset ? k->num_vgprs - k->accum_offset : 0;
    u32 arch = k->num_vgprs < k->accum_offset ? k->num_vgprs : k->accum_offset;
    memset((u8 *)w + offsetof(Wave, scc), 0, sizeof *w - offsetof(Wave, scc));
    fill(w->v, bad, arch * sizeof(Row));
    fill(w->v + 256, bad, acc * sizeof(Row));
    fill(w->s, bad, sizeof w->s);
    w->group = g;
    w->number = number;
    w->scratch = scratch;
    w->scratch_bytes = k->scratch_bytes;
    if (scratch) fill(scratch, bad, (size_t)LANES * k->scratch_bytes);
    set_pair(w->s + EXEC, here == LANES ? ~0ull : (1ull << here) - 1);
    w->mode = k->mode;
    start_scalars(w, g);
    EACH_LANE {
        u32 t = LANES * number + (u32)l;
        w->v[0][l] = t % block[0] | t / block[0] % block[1] << 10 | t / block[0] / block[1] << 20;
    }
    /* With preloaded arguments the first 256 bytes, which would load them, are skipped. */
    u64 start = k->entry - g->module->text_start + (k->preload & 127 ? 256 : 0);
    w->next = w->inst = g->module->insts + start / 4;
}

/* ---- running ------------------------------------------------------------------------------ */

void run_wave(Wave *w, u64 budget) {
    u64 *executed = w->group->counts->executed;
    const Inst *end =
        w->group->module->insts + (w->group->module->text_end - w->group->module->text_start) / 4;
    enter_mode(w);
    for (w->state = RUNNING; budget && w->state == RUNNING; budget--) {
        const Inst *i = w->next;
        if (__builtin_expect(i >= end, 0)) fault(w, w->inst, "runs past the end of the code");
        w->inst = i;
        w->next = i + i->words;
        executed[i->index]++;
        w->executed++;
        i->exec(w, i);
    }
    if (w->executed > settings.instruction_limit)
        fault(w, w->inst,
              "more than %llu instructions: an endless loop, or a wait for another "
              "workgroup, which may not have begun",
              (unsigned long long)settings.instruction_limit);
}

/* What was touched before does not matter any more. */
static void next_epoch(Group *g) {
    if (++g->epoch < MOST_EPOCHS) return;
    g->epoch = 1;
    if (g->marks) memset(g->marks, 0, g->lds_bytes / 4 * sizeof *g->marks);
}

/* Waves take turns of random length in random order. A barrier opens when every wave that has not
 * finished is at it. */
static void run_group(Group *g, Wave *waves, u32 count, u64 *random) {
    u32 runnable[MAX_WAVES], ready = count, live = count;
    for (u32 n = 0; n < count; n++) runnable[n] = n;
    while (live) {
        u32 pick = count == 1 ? 0 : next_random(random) % ready;
        Wave *w = waves + runnable[pick];
        run_wave(w, count == 1 ? 1 << 20 : 1 + next_random(random) % 256);
        if (w->state == RUNNING) continue;
        if (w->state == FINISHED) live--;
        runnable[pick] = runnable[--ready];
        if (ready || !live) continue;
        next_epoch(g);
        g->counts->barriers++;
        for (u32 n = 0; n < count; n++)
            if (waves[n].state == AT_BARRIER) runnable[ready++] = n;
    }
}

typedef struct {
    const Launch *launch;
    u64 total, seed;
    u64 *next;     /* shared: the next workgroup to take */
    bool *failed;  /* shared */
    char *message; /* shared, written by the first to fail */
    pthread_mutex_t *lock;
    Counts counts;
} Worker;

/* A permutation of 0..total-1 chosen by the seed: an odd multiplier modulo a power of two, with
 * values past the end walked over. */
static u64 permuted_id(u64 n, u64 total, u64 seed) {
    u64 mask = 1;
    while (mask < total) mask <<= 1;
    mask--;
    u64 factor = mixed(seed + 1) | 1, shift = mixed(seed + 2);
    do n = (n * factor + shift) & mask;
    while (n >= total);
    return n;
}

static void work_through(Worker *k, Group *g, Wave *waves, u32 count, u8 *scratch) {
    const Launch *l = k->launch;
    for (;;) {
        u64 n = __atomic_fetch_add(k->next, 1, __ATOMIC_RELAXED);
        if (n >= k->total || __atomic_load_n(k->failed, __ATOMIC_RELAXED)) return;
        u64 id = permuted_id(n, k->total, k->seed), random = mixed(k->seed ^ mixed(id));
        g->id[0] = (u32)(id % l->grid[0]);
        g->id[1] = (u32)(id / l->grid[0] % l->grid[1]);
        g->id[2] = (u32)(id / l->grid[0] / l->grid[1]);
        next_epoch(g);
        fill(g->lds, poison(k->seed), (g->lds_bytes + 3) & ~3u);
        for (u32 q = 0; q < count; q++)
            start_wave(waves + q, g, q,
                       scratch ? scratch + (size_t)q * LANES * g->kernel->scratch_bytes : NULL);
        k->counts.waves += count;
        run_group(g, waves, count, &random);
    }
}

static void *work(void *argument) {
    Worker *k = argument;
    const Launch *l = k->launch;
    const Kernel *kernel = l->kernel;
    u32 count = (l->block[0] * l->block[1] * l->block[2] + LANES - 1) / LANES;
    u32 lds = kernel->lds_bytes + l->dynamic_lds;
    char message[MESSAGE_BYTES];
    jmp_buf on_fault;
    Wave *waves = aligned_alloc(64, count * sizeof *waves);
    u8 *scratch =
        kernel->scratch_bytes ? malloc((size_t)count * LANES * kernel->scratch_bytes) : NULL;
    Group group = {.launch = l,
                   .kernel = kernel,
                   .module = kernel->module,
                   .lds_bytes = lds,
                   .lds = malloc(lds + 16),
                   .counts = &k->counts,
                   .on_fault = &on_fault,
                   .message = message};
    if (settings.check_races && count > 1 && lds) {
        group.marks = calloc(lds / 4 + 1, sizeof *group.marks);
        group.owners = calloc(lds / 4 + 1, sizeof *group.owners);
    }
    for (u32 q = 0; q < count; q++) fill(waves[q].v, poison(k->seed), sizeof waves[q].v);
    if (!setjmp(on_fault)) {
        work_through(k, &group, waves, count, scratch);
    } else {
        pthread_mutex_lock(k->lock);
        if (!*k->failed) memcpy(k->message, message, sizeof message);
        __atomic_store_n(k->failed, true, __ATOMIC_RELAXED);
        pthread_mutex_unlock(k->lock);
    }
    set_flush(false);
    free(group.marks), free(group.owners), free(group.lds), free(scratch), free(waves);
    return NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_counts(Counts *sum, const Counts *c) {
    for (size_t n = 0; n < sizeof *sum / sizeof(u64); n++) ((u64 *)sum)[n] += ((const u64 *)c)[n];
}

/* Run a dispatch to its end; 0, or 1 with the message of its first fault. Kernels with global
 * atomics run on one thread: workgroups one after the other, so the order is the seed's alone. */
int launch(const Launch *l, char *message) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    enum { MAX_THREADS = 16 };
    static Worker workers[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool failed = false;
    u64 next = 0, total = (u64)l->grid[0] * l->grid[1] * l->grid[2];
    pthread_mutex_lock(&one_at_a_time);
    regions_lock();
    int count = l->kernel->module->has_global_atomics ? 1 : settings.threads;
    if (count > MAX_THREADS) count = MAX_THREADS;
    if ((u64)count > total) count = (int)total;
    double start = now();
    for (int n = 0; n < count; n++) {
        workers[n] = (Worker){.launch = l,
                              .total = total,
                              .seed = settings.seed,
                              .next = &next,
                              .failed = &failed,
                              .message = message,
                              .lock = &lock};
        if (n) pthread_create(&threads[n], NULL, work, &workers[n]);
    }
    if (count) work(&workers[0]);
    for (int n = 1; n < count; n++) {
        pthread_join(threads[n], NULL);
        add_counts(&workers[0].counts, &workers[n].counts);
    }
    if (count) stats_add(l, &workers[0].counts, total, now() - start);
    regions_unlock();
    pthread_mutex_unlock(&one_at_a_time);
    return failed;
}
