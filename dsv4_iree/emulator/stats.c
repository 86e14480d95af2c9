/* What the dispatches did, kept until it is asked for as JSON. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "emu.h"

typedef struct {
    u16 op;
    u64 times;
} Executed;

typedef struct {
    char kernel[NAME_BYTES];
    Target target;
    u32 grid[3], block[3];
    u32 lds_bytes, scratch_bytes, num_vgprs;
    u64 groups, distinct_read, distinct_written;
    double seconds;
    u64 bytes_read, bytes_written, clamped_lanes, barriers, waves, wide_f8f6f4;
    int num_executed;
    Executed *executed; /* the opcodes that occurred */
} Record;

static Record *records;
static size_t num_records, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const class_names[NUM_CLASSES] = {"mfma",   "valu",    "salu",   "smem", "lds",
                                                     "global", "scratch", "branch", "sync"};

/* The opcodes that occurred, since most did not. */
static void keep_executed(Record *r, const Counts *c) {
    r->executed = malloc((size_t)op_count() * sizeof *r->executed);
    for (int n = 0; n < op_count(); n++)
        if (c->executed[n]) r->executed[r->num_executed++] = (Executed){(u16)n, c->executed[n]};
    r->executed = realloc(r->executed, (size_t)(r->num_executed + 1) * sizeof *r->executed);
}

void stats_add(const Launch *l, const Counts *c, u64 groups, double seconds) {
    const Kernel *k = l->kernel;
    Record r = {.target = k->module->target,
                .lds_bytes = k->lds_bytes + l->dynamic_lds,
                .scratch_bytes = k->scratch_bytes,
                .num_vgprs = k->num_vgprs,
                .groups = groups,
                .seconds = seconds,
                .bytes_read = c->bytes_read,
                .bytes_written = c->bytes_written,
                .clamped_lanes = c->clamped_lanes,
                .barriers = c->barriers,
                .waves = c->waves,
                .wide_f8f6f4 = c->wide_f8f6f4};
    memcpy(r.kernel, k->name, sizeof r.kernel);
    memcpy(r.grid, l->grid, sizeof r.grid);
    memcpy(r.block, l->block, sizeof r.block);
    if (settings.count_distinct) regions_distinct(&r.distinct_read, &r.distinct_written);
    keep_executed(&r, c);
    pthread_mutex_lock(&lock);
    if (num_records == room) {
        room = room ? 2 * room : 16;
        records = realloc(records, room * sizeof *records);
    }
    records[num_records++] = r;
    pthread_mutex_unlock(&lock);
}

void stats_reset(void) {
    pthread_mutex_lock(&lock);
    for (size_t n = 0; n < num_records; n++) free(records[n].executed);
    free(records);
    records = NULL, num_records = room = 0;
    pthread_mutex_unlock(&lock);
}

typedef struct {
    char *text;
    size_t length, room;
} Text;

static void __attribute__((format(printf, 2, 3))) add(Text *t, const char *format, ...) {
    if (t->room - t->length < 1024) t->text = realloc(t->text, t->room = 2 * t->room + 4096);
    va_list args;
    va_start(args, format);
    t->length += (size_t)vsnprintf(t->text + t->length, t->room - t->length, format, args);
    va_end(args);
}

static void add_number(Text *t, const char *name, u64 x) {
    add(t, "\"%s\": %llu, ", name, (unsigned long long)x);
}

static void add_triple(Text *t, const char *name, const u32 *x) {
    add(t, "\"%s\": [%u, %u, %u], ", name, x[0], x[1], x[2]);
}

static void add_record(Text *t, const Record *r) {
    u64 classes[NUM_CLASSES] = {0};
    add(t, "{\"kernel\": \"%s\", \"target\": \"%s\", ", r->kernel, target_names[r->target]);
    add_triple(t, "grid", r->grid);
    add_triple(t, "block", r->block);
    add_number(t, "workgroups", r->groups);
    add_number(t, "waves", r->waves);
    add_number(t, "barriers", r->barriers);
    add_number(t, "lds_bytes", r->lds_bytes);
    add_number(t, "scratch_bytes", r->scratch_bytes);
    add_number(t, "vgprs", r->num_vgprs);
    add_number(t, "bytes_read", r->bytes_read);
    add_number(t, "bytes_written", r->bytes_written);
    add_number(t, "distinct_bytes_read", r->distinct_read);
    add_number(t, "distinct_bytes_written", r->distinct_written);
    add_number(t, "clamped_lanes", r->clamped_lanes);
    add_number(t, "wide_f8f6f4", r->wide_f8f6f4);
    add(t, "\"seconds\": %.9f, \"opcodes\": {", r->seconds);
    const char *comma = "";
    for (int n = 0; n < r->num_executed; n++, comma = ", ") {
        const Op *op = op_at(r->executed[n].op);
        classes[op->class] += r->executed[n].times;
        add(t, "%s\"%s\": %llu", comma, op->name, (unsigned long long)r->executed[n].times);
    }
    add(t, "}, \"classes\": {");
    for (int n = 0; n < NUM_CLASSES; n++)
        add(t, "%s\"%s\": %llu", n ? ", " : "", class_names[n], (unsigned long long)classes[n]);
    add(t, "}}");
}

/* All records as a JSON list; the caller frees it. */
char *stats_json(void) {
    Text t = {NULL, 0, 0};
    pthread_mutex_lock(&lock);
    add(&t, "[");
    for (size_t n = 0; n < num_records; n++) {
        if (n) add(&t, ",\n");
        add_record(&t, records + n);
    }
    add(&t, "]");
    pthread_mutex_unlock(&lock);
    return t.text;
}
