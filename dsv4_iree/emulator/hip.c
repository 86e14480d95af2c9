/* The HIP runtime's entry points that IREE's driver resolves, over host memory. Streams are
 * synchronous: work is done when the call that asks for it returns. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "emu.h"

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    NO_BINARY_FOR_GPU = 209,
    NOT_FOUND = 500,
    LAUNCH_FAILURE = 719,
    NOT_SUPPORTED = 801
};
typedef int Status;

typedef struct {
    Target target;
    const char *name;
    u64 memory;
    int lds, units;
} Device;
static Device devices[NUM_TARGETS] = {
    {GFX942, "emulated AMD Instinct MI300X (gfx942)", 192ull << 30, 64 << 10, 304},
    {GFX950, "emulated AMD Instinct MI355X (gfx950)", 288ull << 30, 160 << 10, 256},
};
static __thread Device *current = &devices[0];

/* ---- errors ------------------------------------------------------------------------------- */

static char last_message[MESSAGE_BYTES];
static pthread_mutex_t message_lock = PTHREAD_MUTEX_INITIALIZER;

static Status failed(Status status, const char *message) {
    pthread_mutex_lock(&message_lock);
    snprintf(last_message, sizeof last_message, "%s", message);
    pthread_mutex_unlock(&message_lock);
    fprintf(stderr, "dsv4_iree.emulator: %s\n", message);
    return status;
}

API const char *hipGetErrorName(Status s) {
    switch (s) {
    case SUCCESS: return "hipSuccess";
    case INVALID_VALUE: return "hipErrorInvalidValue";
    case OUT_OF_MEMORY: return "hipErrorOutOfMemory";
    case INVALID_DEVICE: return "hipErrorInvalidDevice";
    case INVALID_IMAGE: return "hipErrorInvalidImage";
    case NO_BINARY_FOR_GPU: return "hipErrorNoBinaryForGpu";
    case NOT_FOUND: return "hipErrorNotFound";
    case LAUNCH_FAILURE: return "hipErrorLaunchFailure";
    case NOT_SUPPORTED: return "hipErrorNotSupported";
    }
    return "hipErrorUnknown";
}
API const char *hipGetErrorString(Status s) {
    return s == SUCCESS ? "no error" : last_message[0] ? last_message : hipGetErrorName(s);
}
API Status hipGetLastError(void) { return SUCCESS; }

/* ---- devices and contexts: a context is its device ---------------------------------------- */

API Status hipInit(unsigned flags) {
    (void)flags;
    return SUCCESS;
}
API Status hipGetDeviceCount(int *count) {
    *count = NUM_TARGETS;
    return SUCCESS;
}
API Status hipDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal >= NUM_TARGETS)
        return failed(INVALID_DEVICE, "there are two devices, 0 and 1");
    *device = ordinal;
    return SUCCESS;
}
API Status hipSetDevice(int device) {
    if (device < 0 || device >= NUM_TARGETS)
        return failed(INVALID_DEVICE, "there are two devices, 0 and 1");
    current = &devices[device];
    return SUCCESS;
}
API Status hipDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "%s", devices[device].name);
    return SUCCESS;
}
API Status hipDeviceGetUuid(char *uuid, int device) {
    memcpy(uuid, device == GFX942 ? "emulated--gfx942" : "emulated--gfx950", 16);
    return SUCCESS;
}
API Status hipDevicePrimaryCtxRetain(void **context, int device) {
    *context = &devices[device];
    return SUCCESS;
}
API Status hipDevicePrimaryCtxRelease(int device) {
    (void)device;
    return SUCCESS;
}
API Status hipCtxSetCurrent(void *context) {
    current = context ? context : &devices[0];
    return SUCCESS;
}
API Status hipCtxGetCurrent(void **context) {
    *context = current;
    return SUCCESS;
}
enum { DEPTH = 16 };
static __thread Device *stack[DEPTH];
static __thread int depth;
API Status hipCtxPushCurrent(void *context) {
    if (depth == DEPTH) return failed(INVALID_VALUE, "too many contexts pushed");
    stack[depth++] = current;
    current = context;
    return SUCCESS;
}
API Status hipCtxPopCurrent(void **context) {
    if (context) *context = current;
    if (depth) current = stack[--depth];
    return SUCCESS;
}
API Status hipDeviceCanAccessPeer(int *can, int a, int b) {
    (void)a, (void)b;
    *can = 0;
    return SUCCESS;
}
API Status hipDeviceEnablePeerAccess(int device, unsigned flags) {
    (void)device, (void)flags;
    return NOT_SUPPORTED;
}

/* Attributes by their number in hipDeviceAttribute_t; those not listed are 0. */
API Status hipDeviceGetAttribute(int *value, int attribute, int device) {
    enum {
        MAX_BLOCK_X = 26,
        MAX_BLOCK_Y,
        MAX_BLOCK_Z,
        MAX_GRID_X,
        MAX_GRID_Y,
        MAX_GRID_Z,
        MAX_THREADS = 56,
        MULTIPROCESSORS = 63,
        MAX_SHARED_MEMORY = 74,
        WARP_SIZE = 87
    };
    const Device *d = &devices[device];
    switch (attribute) {
    case MAX_BLOCK_X:
    case MAX_BLOCK_Y:
    case MAX_BLOCK_Z:
    case MAX_THREADS: *value = 1024; break;
    case MAX_GRID_X: *value = 2147483647; break;
    case MAX_GRID_Y:
    case MAX_GRID_Z: *value = 65535; break;
    case MULTIPROCESSORS: *value = d->units; break;
    case MAX_SHARED_MEMORY: *value = d->lds; break;
    case WARP_SIZE: *value = LANES; break;
    default: *value = 0;
    }
    return SUCCESS;
}

/* The layout of the structure's first version, which is what this entry point still fills. */
API Status hipGetDeviceProperties(char *p, int device) {
    enum {
        BYTES = 792,
        MEMORY = 256,
        SHARED = 264,
        WARP = 276,
        BLOCK = 280,
        MAJOR = 328,
        MINOR = 332,
        UNITS = 336,
        ARCH = 396
    };
    const Device *d = &devices[device];
    memset(p, 0, BYTES);
    snprintf(p, 256, "%s", d->name);
    memcpy(p + MEMORY, &d->memory, 8);
    memcpy(p + SHARED, &(u64){(u64)d->lds}, 8);
    memcpy(p + WARP, &(int){LANES}, 4);
    for (int n = 0; n < 4; n++) memcpy(p + BLOCK + 4 * n, &(int){1024}, 4);
    memcpy(p + MAJOR, &(int){9}, 4);
    memcpy(p + MINOR, &(int){d->target == GFX942 ? 4 : 5}, 4);
    memcpy(p + UNITS, &d->units, 4);
    snprintf(p + ARCH, 256, "%s", target_names[d->target]);
    return SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Device memory starts as NaN in every float format and -1 in every integer. Host memory is left
 * untouched: the driver asks for a large staging buffer per device, which it rarely fills. */
static Status allocate(void **p, u64 bytes, const char *what, bool poisoned) {
    *p = aligned_alloc(256, (bytes + 511) & ~255ull);
    if (!*p) return failed(OUT_OF_MEMORY, "the host is out of memory");
    if (poisoned) memset(*p, 0xff, bytes);
    region_add(*p, bytes, what);
    return SUCCESS;
}
static Status release(void *p) {
    if (!p) return SUCCESS;
    if (!region_remove(p)) return failed(INVALID_VALUE, "freed twice, or never allocated");
    free(p);
    return SUCCESS;
}
API Status hipMalloc(void **p, u64 bytes) { return allocate(p, bytes, "device buffer", true); }
API Status hipFree(void *p) { return release(p); }
API Status hipMallocAsync(void **p, u64 bytes, void *stream) {
    (void)stream;
    return hipMalloc(p, bytes);
}
API Status hipFreeAsync(void *p, void *stream) {
    (void)stream;
    return release(p);
}
API Status hipMallocManaged(void **p, u64 bytes, unsigned flags) {
    (void)flags;
    return allocate(p, bytes, "managed buffer", true);
}
API Status hipHostMalloc(void **p, u64 bytes, unsigned flags) {
    (void)flags;
    return allocate(p, bytes, "host buffer", false);
}
API Status hipHostFree(void *p) { return release(p); }
API Status hipHostGetDevicePointer(void **d, void *h, unsigned flags) {
    (void)flags;
    *d = h;
    return SUCCESS;
}
API Status hipHostRegister(void *p, u64 bytes, unsigned flags) {
    (void)flags;
    region_add(p, bytes, "registered host memory");
    return SUCCESS;
}
API Status hipHostUnregister(void *p) {
    return region_remove(p) ? SUCCESS
                            : failed(INVALID_VALUE, "host memory that was not registered");
}

/* A copy or fill that starts in an allocation must end in it. */
static Status check_span(const char *call, const void *p, u64 bytes) {
    char message[256];
    regions_lock();
    const Region *found = region_find((u64)p, bytes), copy = found ? *found : (Region){0},
                 *r = &copy;
    regions_unlock();
    if (!found || bytes <= r->start + r->size - (u64)p) return SUCCESS;
    snprintf(message, sizeof message,
             "%s of %llu bytes at %p runs %llu bytes past the end of the %s at 0x%llx", call,
             (unsigned long long)bytes, p,
             (unsigned long long)((u64)p + bytes - r->start - r->size), r->what,
             (unsigned long long)r->start);
    return failed(INVALID_VALUE, message);
}
API Status hipMemcpy(void *to, const void *from, u64 bytes, int kind) {
    (void)kind;
    if (check_span("copy", to, bytes) || check_span("copy", from, bytes)) return INVALID_VALUE;
    memmove(to, from, bytes);
    return SUCCESS;
}
API Status hipMemcpyAsync(void *to, const void *from, u64 bytes, int kind, void *stream) {
    (void)stream;
    return hipMemcpy(to, from, bytes, kind);
}
API Status hipMemcpyHtoDAsync(void *to, const void *from, u64 bytes, void *stream) {
    (void)stream;
    return hipMemcpy(to, from, bytes, 0);
}
static Status fill(void *to, const void *pattern, u64 size, u64 count) {
    if (check_span("fill", to, size * count)) return INVALID_VALUE;
    for (u64 n = 0; n < count; n++) memcpy((u8 *)to + n * size, pattern, size);
    return SUCCESS;
}
API Status hipMemset(void *to, int value, u64 bytes) {
    return fill(to, &(u8){(u8)value}, 1, bytes);
}
API Status hipMemsetAsync(void *to, int value, u64 bytes, void *stream) {
    (void)stream;
    return hipMemset(to, value, bytes);
}
API Status hipMemsetD8Async(void *to, u8 value, u64 count, void *stream) {
    (void)stream;
    return fill(to, &value, 1, count);
}
API Status hipMemsetD16Async(void *to, u16 value, u64 count, void *stream) {
    (void)stream;
    return fill(to, &value, 2, count);
}
API Status hipMemsetD32Async(void *to, u32 value, u64 count, void *stream) {
    (void)stream;
    return fill(to, &value, 4, count);
}
API Status hipMemPrefetchAsync(const void *p, u64 n, int device, void *stream) {
    (void)p, (void)n, (void)device, (void)stream;
    return SUCCESS;
}

/* hipPointerAttribute_t: type, device, device pointer, host pointer, managed, flags. */
typedef struct {
    int type, device;
    void *device_pointer, *host_pointer;
    int managed;
    unsigned flags;
} PointerAttributes;
API Status hipPointerGetAttributes(PointerAttributes *a, const void *p) {
    enum { HOST = 1, DEVICE = 2 };
    regions_lock();
    const Region *r = region_find((u64)p, 1);
    bool host = r && (strstr(r->what, "host") != NULL);
    *a = (PointerAttributes){.type = host ? HOST : DEVICE,
                             .device = (int)(current - devices),
                             .device_pointer = (void *)p,
                             .host_pointer = (void *)p};
    regions_unlock();
    return r ? SUCCESS : INVALID_VALUE;
}
API Status hipPointerGetAttribute(void *out, int attribute, const void *p) {
    enum { CONTEXT = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER };
    PointerAttributes a;
    Status s = hipPointerGetAttributes(&a, p);
    if (s) return s;
    switch (attribute) {
    case CONTEXT: memcpy(out, &(void *){current}, sizeof(void *)); return SUCCESS;
    case MEMORY_TYPE: memcpy(out, &a.type, sizeof a.type); return SUCCESS;
    case DEVICE_POINTER:
    case HOST_POINTER: memcpy(out, &p, sizeof p); return SUCCESS;
    }
    return NOT_SUPPORTED;
}

/* Pools are not offered (the attribute says so), so these are never reached. */
#define UNSUPPORTED(name) \
    API Status name(void) { return failed(NOT_SUPPORTED, #name " is not emulated"); }
UNSUPPORTED(hipMallocFromPoolAsync)
UNSUPPORTED(hipMemPoolCreate)
UNSUPPORTED(hipMemPoolDestroy)
UNSUPPORTED(hipMemPoolGetAttribute) UNSUPPORTED(hipMemPoolSetAttribute)
    UNSUPPORTED(hipMemPoolTrimTo) UNSUPPORTED(hipGraphAddEmptyNode)
        UNSUPPORTED(hipGraphAddEventRecordNode) UNSUPPORTED(hipGraphAddKernelNode)
            UNSUPPORTED(hipGraphAddMemsetNode) UNSUPPORTED(hipGraphCreate)
                UNSUPPORTED(hipGraphDestroy) UNSUPPORTED(hipGraphExecDestroy)
                    UNSUPPORTED(hipGraphInstantiate) UNSUPPORTED(hipGraphLaunch)
                        UNSUPPORTED(hipDrvGraphAddMemcpyNode) UNSUPPORTED(hipLaunchKernel)

    /* ---- streams and events: everything has already happened ----------------------------------
     */

    static Status something(void **p) {
    *p = malloc(8);
    return SUCCESS;
}
API Status hipStreamCreateWithFlags(void **s, unsigned flags) {
    (void)flags;
    return something(s);
}
API Status hipStreamDestroy(void *s) {
    free(s);
    return SUCCESS;
}
API Status hipStreamSynchronize(void *s) {
    (void)s;
    return SUCCESS;
}
API Status hipStreamWaitEvent(void *s, void *e, unsigned flags) {
    (void)s, (void)e, (void)flags;
    return SUCCESS;
}
API Status hipEventCreate(void **e) { return something(e); }
API Status hipEventCreateWithFlags(void **e, unsigned flags) {
    (void)flags;
    return something(e);
}
API Status hipEventDestroy(void *e) {
    free(e);
    return SUCCESS;
}
API Status hipEventElapsedTime(float *ms, void *a, void *b) {
    (void)a, (void)b;
    *ms = 0;
    return SUCCESS;
}
API Status hipEventQuery(void *e) {
    (void)e;
    return SUCCESS;
}
API Status hipEventRecord(void *e, void *s) {
    (void)e, (void)s;
    return SUCCESS;
}
API Status hipEventSynchronize(void *e) {
    (void)e;
    return SUCCESS;
}
API Status hipLaunchHostFunc(void *s, void (*f)(void *), void *data) {
    (void)s;
    f(data);
    return SUCCESS;
}

/* ---- modules and launches ----------------------------------------------------------------- */

static Status load_module(void **out, const void *image, u64 bytes) {
    char message[MESSAGE_BYTES];
    *out = module_load(image, bytes, current->target, message);
    return *out ? SUCCESS : failed(NO_BINARY_FOR_GPU, message);
}
API Status hipModuleLoadDataEx(void **out, const void *image, unsigned n, void *options,
                               void *values) {
    (void)n, (void)options, (void)values;
    return load_module(out, image, UNKNOWN_BYTES);
}
API Status hipModuleLoadData(void **out, const void *image) {
    return load_module(out, image, UNKNOWN_BYTES);
}
API Status hipModuleUnload(void *m) {
    module_free(m);
    return SUCCESS;
}
API Status hipModuleGetFunction(void **out, Module *m, const char *name) {
    char message[NAME_BYTES + 64];
    for (int n = 0; n < m->num_kernels; n++)
        if (!strcmp(m->kernels[n].name, name)) {
            *out = m->kernels + n;
            return SUCCESS;
        }
    snprintf(message, sizeof message, "the code object has no kernel %.*s", NAME_BYTES, name);
    return failed(NOT_FOUND, message);
}
API Status hipModuleGetGlobal(void **p, u64 *bytes, Module *m, const char *name) {
    (void)p, (void)bytes, (void)m, (void)name;
    return failed(NOT_FOUND, "global variables of a code object are not emulated");
}
API Status hipFuncGetAttribute(int *value, int attribute, const Kernel *k) {
    enum { MAX_THREADS_PER_BLOCK, SHARED_BYTES, CONST_BYTES, LOCAL_BYTES, NUM_REGISTERS };
    *value = attribute == SHARED_BYTES            ? (int)k->lds_bytes
             : attribute == LOCAL_BYTES           ? (int)k->scratch_bytes
             : attribute == NUM_REGISTERS         ? (int)k->num_vgprs
             : attribute == MAX_THREADS_PER_BLOCK ? 1024
                                                  : 0;
    return SUCCESS;
}
API Status hipFuncSetAttribute(const void *k, int attribute, int value) {
    (void)k, (void)attribute, (void)value;
    return SUCCESS;
}

/* By the order of hidden_names in elf.c; the remainders and offsets are 0: grids are whole. */
static u32 hidden_value(u16 kind, const Launch *l) {
    if (kind >= 1 && kind <= 3) return l->grid[kind - 1];
    if (kind >= 4 && kind <= 6) return l->block[kind - 4];
    if (kind == 13) return l->grid[2] > 1 ? 3 : l->grid[1] > 1 ? 2 : 1;
    return 0;
}

/* What the kernel did not ask for by a name we know stays poisoned, so that its use shows. */
static void pack_arguments(const Kernel *k, const Launch *l, void **params) {
    int next = 0;
    memset(l->kernargs, 0xff, k->kernarg_bytes);
    for (int n = 0; n < k->num_args; n++) {
        u8 *to = l->kernargs + k->args[n].offset;
        u32 size = k->args[n].size;
        u64 value = hidden_value(k->args[n].hidden, l);
        if (!k->args[n].hidden) memcpy(to, params[next++], size);
        else if (k->args[n].hidden != 0xffff) memcpy(to, &value, size < 8 ? size : 8);
    }
}

/* The dispatch packet: workgroup size from byte 4, grid size in threads from byte 12. */
static void fill_packet(Launch *l) {
    for (int axis = 0; axis < 3; axis++) {
        memcpy(l->packet + 4 + 2 * axis, &(u16){(u16)l->block[axis]}, 2);
        memcpy(l->packet + 12 + 4 * axis, &(u32){l->grid[axis] * l->block[axis]}, 4);
    }
    memcpy(l->packet + 40, &l->kernargs, 8);
}

static Status check_launch(const Launch *l) {
    char message[NAME_BYTES + 128];
    const Kernel *k = l->kernel;
    u64 threads = (u64)l->block[0] * l->block[1] * l->block[2];
    u64 lds = (u64)k->lds_bytes + l->dynamic_lds;
    if (threads == 0 || threads > 1024) {
        snprintf(message, sizeof message,
                 "kernel %s: a workgroup of %llu threads, the limit is 1024", k->name,
                 (unsigned long long)threads);
        return failed(INVALID_VALUE, message);
    }
    if (lds > (u64)devices[k->module->target].lds) {
        snprintf(message, sizeof message, "kernel %s: %llu bytes of LDS, %s has %d", k->name,
                 (unsigned long long)lds, target_names[k->module->target],
                 devices[k->module->target].lds);
        return failed(INVALID_VALUE, message);
    }
    return SUCCESS;
}

API Status hipModuleLaunchKernel(const Kernel *k, unsigned gx, unsigned gy, unsigned gz,
                                 unsigned bx, unsigned by, unsigned bz, unsigned dynamic_lds,
                                 void *stream, void **params, void **extra) {
    (void)stream;
    char message[MESSAGE_BYTES];
    Launch l = {
        .kernel = k, .grid = {gx, gy, gz}, .block = {bx, by, bz}, .dynamic_lds = dynamic_lds};
    if (check_launch(&l)) return INVALID_VALUE;
    if (extra) return failed(NOT_SUPPORTED, "arguments passed by `extra` are not emulated");
    l.kernargs = aligned_alloc(64, (k->kernarg_bytes + 127) & ~63u);
    pack_arguments(k, &l, params);
    fill_packet(&l);
    region_add(l.kernargs, k->kernarg_bytes, "kernel arguments");
    region_add(l.packet, sizeof l.packet, "dispatch packet");
    int fault = launch(&l, message);
    region_remove(l.packet);
    region_remove(l.kernargs);
    free(l.kernargs);
    return fault ? failed(LAUNCH_FAILURE, message) : SUCCESS;
}

/* ---- for Python --------------------------------------------------------------------------- */

char *stats_json(void);
void stats_reset(void);
API char *emulator_stats(void) { return stats_json(); }
API void emulator_free(void *p) { free(p); }
API void emulator_reset_stats(void) { stats_reset(); }
API void emulator_last_error(char *out, size_t bytes) {
    pthread_mutex_lock(&message_lock);
    snprintf(out, bytes, "%s", last_message);
    pthread_mutex_unlock(&message_lock);
}
API void emulator_clear_error(void) {
    pthread_mutex_lock(&message_lock);
    last_message[0] = 0;
    pthread_mutex_unlock(&message_lock);
}
API void emulator_set(u64 seed, int threads, u64 instruction_limit, int check_races,
                      int count_distinct) {
    settings.seed = seed;
    settings.threads = threads;
    settings.instruction_limit = instruction_limit;
    settings.check_races = check_races;
    if (settings.count_distinct != (count_distinct != 0)) regions_count_distinct(count_distinct);
    settings.count_distinct = count_distinct;
}
API void emulator_register(void *p, u64 bytes) { region_add(p, bytes, "registered host memory"); }
API int emulator_unregister(void *p) { return region_remove(p); }
API int emulator_load(const void *image, u64 bytes, int device) { /* check a code object */
    char message[MESSAGE_BYTES];
    Module *m = module_load(image, bytes, (Target)device, message);
    if (!m) return failed(NO_BINARY_FOR_GPU, message);
    module_free(m);
    return SUCCESS;
}
