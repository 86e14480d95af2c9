/* Live allocations, sorted by address. A launch holds the lock for reading, so that nothing is
 * freed under a running kernel. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "memory.h"

static Region *regions;
static size_t num_regions, room;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static bool counting_distinct;

void regions_lock(void) { pthread_rwlock_rdlock(&lock); }
void regions_unlock(void) { pthread_rwlock_unlock(&lock); }

/* The number of regions that start at or below the address. */
static size_t count_below(u64 address) {
    size_t low = 0, high = num_regions;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void set_maps(Region *r, bool on) {
    free(r->read_map), free(r->write_map);
    r->read_map = on ? calloc(r->size / 8 + 16, 1) : NULL;
    r->write_map = on ? calloc(r->size / 8 + 16, 1) : NULL;
}

void region_add(const void *start, u64 size, const char *what) {
    pthread_rwlock_wrlock(&lock);
    if (num_regions == room) {
        room = room ? 2 * room : 64;
        regions = realloc(regions, room * sizeof *regions);
    }
    size_t at = count_below((u64)start);
    memmove(regions + at + 1, regions + at, (num_regions - at) * sizeof *regions);
    regions[at] = (Region){.start = (u64)start, .size = size, .what = what};
    set_maps(regions + at, counting_distinct);
    num_regions++;
    pthread_rwlock_unlock(&lock);
}

bool region_remove(const void *start) {
    pthread_rwlock_wrlock(&lock);
    size_t at = count_below((u64)start);
    bool found = at && regions[at - 1].start == (u64)start;
    if (found) {
        free(regions[at - 1].read_map), free(regions[at - 1].write_map);
        memmove(regions + at - 1, regions + at, (num_regions - at) * sizeof *regions);
        num_regions--;
    }
    pthread_rwlock_unlock(&lock);
    return found;
}

/* The region that holds all bytes, else one that holds the first, else NULL. Registered host memory
 * may overlap, as tensors that are views do, so look further down than the nearest start. */
const Region *region_find(u64 address, u64 bytes) {
    enum { DEPTH = 32 };
    const Region *partly = NULL;
    size_t at = count_below(address);
    for (size_t n = 0; n < DEPTH && n < at; n++) {
        const Region *r = regions + at - 1 - n;
        if (address - r->start >= r->size) continue;
        if (bytes <= r->size - (address - r->start)) return r;
        if (!partly) partly = r;
    }
    return partly;
}

void region_nearest(u64 address, char *out, size_t size) {
    size_t at = count_below(address);
    const Region *below = at ? regions + at - 1 : NULL,
                 *above = at < num_regions ? regions + at : NULL;
    u64 past = below ? address - (below->start + below->size) : 0;
    if (below && address < below->start + below->size)
        snprintf(out, size, "it starts inside the %s of %llu bytes at 0x%llx and runs past its end",
                 below->what, (unsigned long long)below->size, (unsigned long long)below->start);
    else if (below && (!above || past < above->start - address))
        snprintf(out, size, "nearest: %llu bytes past the end of the %s of %llu bytes at 0x%llx",
                 (unsigned long long)past, below->what, (unsigned long long)below->size,
                 (unsigned long long)below->start);
    else if (above)
        snprintf(out, size, "nearest: %llu bytes before the %s of %llu bytes at 0x%llx",
                 (unsigned long long)(above->start - address), above->what,
                 (unsigned long long)above->size, (unsigned long long)above->start);
    else snprintf(out, size, "there is no live allocation");
}

/* ---- distinct bytes ----------------------------------------------------------------------- */

void regions_count_distinct(bool on) {
    pthread_rwlock_wrlock(&lock);
    counting_distinct = on;
    for (size_t n = 0; n < num_regions; n++) set_maps(regions + n, on);
    pthread_rwlock_unlock(&lock);
}

void count_distinct(const Region *r, u64 address, u32 bytes, bool write) {
    u8 *map = write ? r->write_map : r->read_map;
    for (u64 at = address - r->start, end = at + bytes; at < end; at++)
        __atomic_fetch_or(map + at / 8, (u8)(1 << at % 8), __ATOMIC_RELAXED);
}

/* Counts the marks and wipes them for the next dispatch. */
static u64 take_ones(u8 *map, u64 size) {
    u64 total = 0, word;
    for (u64 at = 0; map && at < size / 8 + 8; at += 8) {
        memcpy(&word, map + at, 8);
        total += (u64)__builtin_popcountll(word);
    }
    if (map) memset(map, 0, size / 8 + 16);
    return total;
}

void regions_distinct(u64 *read, u64 *written) {
    *read = *written = 0;
    for (size_t n = 0; n < num_regions; n++) {
        *read += take_ones(regions[n].read_map, regions[n].size);
        *written += take_ones(regions[n].write_map, regions[n].size);
    }
}
