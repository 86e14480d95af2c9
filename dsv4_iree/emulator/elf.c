/* Code objects: ELF images with kernel descriptors and msgpack metadata. Nothing in them is
 * trusted: every read is checked against the end of what contains it. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
#include "emu.h"

const char *const target_names[NUM_TARGETS] = {"gfx942", "gfx950"};

typedef struct {
    const u8 *start, *end; /* the file */
    const u8 *meta_end;    /* the metadata within it */
    char *message;
    Module *module; /* being made; freed when it is refused */
    jmp_buf on_error;
} Reader;

static void __attribute__((noreturn, format(printf, 2, 3))) reject(Reader *r, const char *format,
                                                                   ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(r->message, MESSAGE_BYTES, format, args);
    va_end(args);
    longjmp(r->on_error, 1);
}

/* ---- msgpack, as much as the metadata uses ------------------------------------------------ */

typedef enum { MAP, ARRAY, STRING, NUMBER, OTHER } Kind;
typedef struct {
    Kind kind;
    u64 value;
    const u8 *body;
} Item; /* value: a number or a count */

static u64 big_endian(Reader *r, const u8 *p, unsigned bytes) {
    u64 x = 0;
    if ((size_t)(r->meta_end - p) < bytes || p > r->meta_end)
        reject(r, "code object: its metadata is truncated");
    while (bytes--) x = x << 8 | *p++;
    return x;
}

static Item item_at(Reader *r, const u8 *p) {
    u8 tag = (u8)big_endian(r, p++, 1);
#define SIZED(kind, n) \
    return (Item) { kind, big_endian(r, p, n), p + n }
    if (tag < 0x80) return (Item){NUMBER, tag, p};
    if (tag < 0x90) return (Item){MAP, tag & 15, p};
    if (tag < 0xa0) return (Item){ARRAY, tag & 15, p};
    if (tag < 0xc0) return (Item){STRING, tag & 31, p};
    if (tag >= 0xe0) return (Item){NUMBER, (u64)(i64)(i8)tag, p};
    switch (tag) {
    case 0xc0:
    case 0xc2: return (Item){OTHER, 0, p};
    case 0xc3: return (Item){OTHER, 1, p};
    case 0xcc:
    case 0xd0: SIZED(NUMBER, 1);
    case 0xcd:
    case 0xd1: SIZED(NUMBER, 2);
    case 0xce:
    case 0xd2: SIZED(NUMBER, 4);
    case 0xcf:
    case 0xd3: SIZED(NUMBER, 8);
    case 0xd9: SIZED(STRING, 1);
    case 0xda: SIZED(STRING, 2);
    case 0xdb: SIZED(STRING, 4);
    case 0xdc: SIZED(ARRAY, 2);
    case 0xdd: SIZED(ARRAY, 4);
    case 0xde: SIZED(MAP, 2);
    case 0xdf: SIZED(MAP, 4);
    }
#undef SIZED
    reject(r, "code object: metadata of an unknown kind 0x%02x", tag);
}

static const u8 *after(Reader *r, const u8 *p) {
    Item i = item_at(r, p);
    if (i.kind == STRING) return i.body + i.value;
    if (i.kind != MAP && i.kind != ARRAY) return i.body;
    p = i.body;
    for (u64 n = i.kind == MAP ? 2 * i.value : i.value; n; n--) p = after(r, p);
    return p;
}

static bool is_string(Reader *r, Item i, const char *text) {
    size_t length = strlen(text);
    if (i.kind != STRING || i.value != length || (size_t)(r->meta_end - i.body) < length)
        return false;
    return !memcmp(i.body, text, length);
}

/* The value under a key of a map, or NULL. */
static const u8 *lookup(Reader *r, const u8 *map, const char *key) {
    Item m = item_at(r, map);
    const u8 *p = m.body;
    if (m.kind != MAP) reject(r, "code object: a map was expected in its metadata");
    for (u64 n = 0; n < m.value; n++) {
        Item k = item_at(r, p);
        const u8 *value = after(r, p);
        if (is_string(r, k, key)) return value;
        p = after(r, value);
    }
    return NULL;
}

static u64 number_under(Reader *r, const u8 *map, const char *key) {
    const u8 *p = lookup(r, map, key);
    return p ? item_at(r, p).value : 0;
}

/* ---- kernels ------------------------------------------------------------------------------ */

/* The order is that of the values launch() puts in: see hidden_value() in hip.c. */
static const char *const hidden_names[] = {
    NULL,
    "hidden_block_count_x",
    "hidden_block_count_y",
    "hidden_block_count_z",
    "hidden_group_size_x",
    "hidden_group_size_y",
    "hidden_group_size_z",
    "hidden_remainder_x",
    "hidden_remainder_y",
    "hidden_remainder_z",
    "hidden_global_offset_x",
    "hidden_global_offset_y",
    "hidden_global_offset_z",
    "hidden_grid_dims",
    "hidden_none",
};

static u16 hidden_kind(Reader *r, Item kind) {
    for (u16 n = 1; n < sizeof hidden_names / sizeof *hidden_names; n++)
        if (is_string(r, kind, hidden_names[n])) return n;
    bool hidden = kind.kind == STRING && kind.value > 7 && !memcmp(kind.body, "hidden_", 7);
    return hidden ? 0xffff : 0;
}

static void read_args(Reader *r, Kernel *k, const u8 *args) {
    Item list = item_at(r, args);
    const u8 *p = list.body;
    if (list.kind != ARRAY || list.value > MAX_ARGS)
        reject(r, "kernel %s: too many arguments", k->name);
    k->num_args = (int)list.value;
    for (int n = 0; n < k->num_args; n++, p = after(r, p)) {
        const u8 *kind = lookup(r, p, ".value_kind");
        k->args[n].offset = (u32)number_under(r, p, ".offset");
        k->args[n].size = (u32)number_under(r, p, ".size");
        k->args[n].hidden = kind ? hidden_kind(r, item_at(r, kind)) : 0;
        if (k->args[n].offset + k->args[n].size > k->kernarg_bytes)
            reject(r, "kernel %s: argument %d lies outside its arguments", k->name, n);
    }
}

/* The 64-byte kernel descriptor. Register counts come in granules of 8 and 4. */
static void read_descriptor(Reader *r, Kernel *k, const Module *m, u64 at) {
    u32 words[16];
    i64 entry;
    if (at + 64 > m->image_bytes)
        reject(r, "kernel %s: its descriptor lies outside the image", k->name);
    memcpy(words, m->image + at, 64);
    memcpy(&entry, words + 4, 8);
    u32 rsrc1 = words[12], rsrc3 = words[11];
    k->lds_bytes = words[0];
    k->scratch_bytes = (words[1] + 3) & ~3u;
    k->kernarg_bytes = words[2];
    k->entry = at + (u64)entry;
    k->rsrc2 = words[13];
    k->properties = words[14] & 0xffff;
    k->preload = words[14] >> 16;
    k->num_vgprs = 8 * ((rsrc1 & 63) + 1);
    k->accum_offset = 4 * ((rsrc3 & 63) + 1);
    k->mode = (rsrc1 >> 12 & 255) | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9 |
              (rsrc1 >> 26 & 1) << 23;
    if (k->num_vgprs > 512) k->num_vgprs = 512;
    if (k->entry < m->text_start || k->entry >= m->text_end || k->entry & 3)
        reject(r, "kernel %s: its entry lies outside the code", k->name);
}

/* ---- the image ---------------------------------------------------------------------------- */

static const void *slice(Reader *r, u64 offset, u64 size, const char *what) {
    u64 all = (u64)(r->end - r->start);
    if (offset > all || size > all - offset)
        reject(r, "code object: truncated, its %s is missing", what);
    return r->start + offset;
}

static u64 string_length(const char *p, const char *end) {
    const char *q = p;
    while (q < end && *q) q++;
    return (u64)(q - p);
}

static u64 symbol_value(Reader *r, const Elf64_Ehdr *h, const char *name) {
    const Elf64_Shdr *sections =
        slice(r, h->e_shoff, h->e_shnum * sizeof *sections, "section table");
    for (int n = 0; n < h->e_shnum; n++) {
        const Elf64_Shdr *s = sections + n;
        if (s->sh_type != SHT_DYNSYM) continue;
        if (s->sh_link >= h->e_shnum) reject(r, "code object: no names for its symbols");
        const Elf64_Shdr *t = sections + s->sh_link;
        const Elf64_Sym *symbols = slice(r, s->sh_offset, s->sh_size, "symbol table");
        const char *names = slice(r, t->sh_offset, t->sh_size, "symbol names");
        for (u64 k = 0; k < s->sh_size / sizeof *symbols; k++) {
            if (symbols[k].st_name >= t->sh_size) continue;
            const char *p = names + symbols[k].st_name;
            u64 length = string_length(p, names + t->sh_size);
            if (length == strlen(name) && !memcmp(p, name, length)) return symbols[k].st_value;
        }
    }
    reject(r, "code object: no symbol %s", name);
}

static void load_segments(Reader *r, Module *m, const Elf64_Ehdr *h, const u8 **note,
                          u64 *note_bytes) {
    const Elf64_Phdr *p = slice(r, h->e_phoff, h->e_phnum * sizeof *p, "program headers");
    enum { MOST_BYTES = 1 << 28 };
    for (int n = 0; n < h->e_phnum; n++) {
        if (p[n].p_type != PT_LOAD) continue;
        if (p[n].p_vaddr > MOST_BYTES || p[n].p_memsz > MOST_BYTES || p[n].p_filesz > p[n].p_memsz)
            reject(r, "code object: a segment of an impossible size");
        if (p[n].p_vaddr + p[n].p_memsz > m->image_bytes)
            m->image_bytes = p[n].p_vaddr + p[n].p_memsz;
    }
    m->image = aligned_alloc(4096, (m->image_bytes + 2 * 4096) & ~4095ull);
    memset(m->image, 0, m->image_bytes);
    for (int n = 0; n < h->e_phnum; n++) {
        const void *from = slice(r, p[n].p_offset, p[n].p_filesz, "segments");
        if (p[n].p_type == PT_NOTE) *note = from, *note_bytes = p[n].p_filesz;
        if (p[n].p_type != PT_LOAD) continue;
        memcpy(m->image + p[n].p_vaddr, from, p[n].p_filesz);
        if (p[n].p_flags & PF_X)
            m->text_start = p[n].p_vaddr, m->text_end = (p[n].p_vaddr + p[n].p_memsz) & ~3ull;
    }
    if (!m->text_end) reject(r, "code object: it holds no code");
}

static const u8 *metadata(Reader *r, const u8 *note, u64 bytes) {
    u32 sizes[3];
    if (!note || bytes < 12) reject(r, "code object: it holds no metadata");
    memcpy(sizes, note, 12);
    u64 body = 12 + ((sizes[0] + 3) & ~3ull);
    enum { NT_AMDGPU_METADATA = 32 };
    if (sizes[2] != NT_AMDGPU_METADATA) reject(r, "code object: its first note is not metadata");
    if (body + sizes[1] > bytes) reject(r, "code object: its metadata is truncated");
    r->meta_end = note + body + sizes[1];
    return note + body;
}

static void read_kernels(Reader *r, Module *m, const Elf64_Ehdr *h, const u8 *meta) {
    const u8 *kernels = lookup(r, meta, "amdhsa.kernels");
    if (!kernels) reject(r, "code object: its metadata lists no kernels");
    Item list = item_at(r, kernels);
    const u8 *p = list.body;
    enum { MOST_KERNELS = 4096 };
    if (list.kind != ARRAY || list.value > MOST_KERNELS)
        reject(r, "code object: its metadata lists no plausible number of kernels");
    m->kernels = calloc(list.value + 1, sizeof *m->kernels);
    for (; (u64)m->num_kernels < list.value; m->num_kernels++, p = after(r, p)) {
        Kernel *k = m->kernels + m->num_kernels;
        const u8 *symbol = lookup(r, p, ".symbol"), *args = lookup(r, p, ".args");
        Item name = symbol ? item_at(r, symbol) : (Item){OTHER, 0, NULL};
        if (name.kind != STRING || name.value < 3 || name.value >= NAME_BYTES ||
            (size_t)(r->meta_end - name.body) < name.value)
            reject(r, "code object: a kernel without a name");
        memcpy(k->name, name.body, name.value); /* NAME.kd, the descriptor's symbol */
        k->module = m;
        k->entry = symbol_value(r, h, k->name);
        k->name[name.value - 3] = 0;
        read_descriptor(r, k, m, k->entry);
        if (args) read_args(r, k, args);
    }
}

/* Decode at every word, since what lies between kernels need not be code. */
static void decode_text(Module *m) {
    u64 words = (m->text_end - m->text_start) / 4;
    const u32 *code = (const u32 *)(m->image + m->text_start);
    m->insts = calloc(words + 1, sizeof *m->insts);
    for (u64 n = 0; n < words; n++) decode(code + n, words - n, m->target, m->insts + n);
    for (u64 n = 0; n < words; n += m->insts[n].words)
        m->has_global_atomics |= m->insts[n].op->flags & IS_ATOMIC;
}

void module_free(Module *m) {
    if (!m) return;
    if (m->image) region_remove(m->image);
    free(m->file), free(m->image), free(m->insts), free(m->kernels), free(m);
}

static Target target_of(Reader *r, const Elf64_Ehdr *h, Target device) {
    enum { MACH_GFX942 = 0x4c, MACH_GFX950 = 0x4f, EM_AMDGPU_ = 224 };
    u32 mach = h->e_flags & 0xff;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG)) reject(r, "code object: it is not an ELF file");
    if (h->e_machine != EM_AMDGPU_)
        reject(r, "code object: it is for machine %d, not for an AMD GPU", h->e_machine);
    if (mach == MACH_GFX942 || mach == MACH_GFX950) {
        Target target = mach == MACH_GFX942 ? GFX942 : GFX950;
        if (target != device)
            reject(r, "code object: it is for %s, but the device is %s", target_names[target],
                   target_names[device]);
        return target;
    }
    reject(r, "code object: it is for the AMD processor number 0x%x, but the device is %s", mach,
           target_names[device]);
}

/* The length is not handed to the loader: the headers say where the last table ends. */
static u64 stated_bytes(const Elf64_Ehdr *h) {
    u64 sections = h->e_shoff + (u64)h->e_shnum * h->e_shentsize;
    u64 headers = h->e_phoff + (u64)h->e_phnum * h->e_phentsize;
    return sections > headers ? sections : headers;
}

/* Copy what can be read: a truncated file may be followed by nothing, or by something else. */
static u64 copy_readable(void *to, const void *from, u64 bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)from, bytes};
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (n >= 0) return (u64)n;
    memcpy(to, from, bytes); /* forbidden here: trust the headers */
    return bytes;
}

/* The last table of the file is that of the sections; that it names itself, and is filled
 * throughout, shows that the file is whole. */
static void check_tail(Reader *r, const Elf64_Ehdr *h) {
    const Elf64_Shdr *s = slice(r, h->e_shoff, h->e_shnum * sizeof *s, "section table");
    if (h->e_shstrndx >= h->e_shnum || h->e_shentsize != sizeof *s)
        reject(r, "code object: its section table is damaged");
    const Elf64_Shdr *names = s + h->e_shstrndx;
    const char *text = slice(r, names->sh_offset, names->sh_size, "section names");
    bool named = names->sh_name < names->sh_size &&
                 names->sh_size - names->sh_name >= sizeof ".shstrtab" &&
                 !memcmp(text + names->sh_name, ".shstrtab", sizeof ".shstrtab");
    for (int n = 1; n < h->e_shnum; n++) named = named && s[n].sh_type != SHT_NULL;
    if (!named) reject(r, "code object: truncated or damaged, its section table makes no sense");
}

static void load(Reader *r, Module *m, const void *data, u64 bytes, Target device) {
    Elf64_Ehdr h;
    u64 there = copy_readable(&h, data, bytes < sizeof h ? bytes : sizeof h);
    if (there < sizeof h) reject(r, "code object: truncated, its header is missing");
    m->target = target_of(r, &h, device);
    u64 stated = stated_bytes(&h);
    enum { MOST_BYTES = 1 << 28 };
    if (stated > MOST_BYTES)
        reject(r, "code object: a size of %llu bytes", (unsigned long long)stated);
    if (bytes < stated)
        reject(r, "code object: truncated, %llu of %llu bytes are there", (unsigned long long)bytes,
               (unsigned long long)stated);
    m->file = malloc(stated);
    there = copy_readable(m->file, data, stated);
    r->start = m->file, r->end = m->file + there;
    check_tail(r, &h);
    const u8 *note = NULL;
    u64 note_bytes = 0;
    load_segments(r, m, &h, &note, &note_bytes);
    read_kernels(r, m, &h, metadata(r, note, note_bytes));
    decode_text(m);
}

/* `bytes` may be UNKNOWN_BYTES. NULL, with a message, if the code object is refused. */
Module *module_load(const void *data, u64 bytes, Target device, char *message) {
    Reader r = {.message = message, .module = calloc(1, sizeof(Module))};
    if (setjmp(r.on_error)) {
        module_free(r.module);
        return NULL;
    }
    load(&r, r.module, data, bytes, device);
    region_add(r.module->image, r.module->image_bytes, "code object");
    return r.module;
}
