/* The orders in which a visit goes through its client's examples: those that NumPy draws (SeedSequence, PCG64, and
   Generator.permutation of fewer than 2^32), bit for bit. Whoever loads the library compares them. */
#include "dense.h"

#include <string.h>

#if defined(__SIZEOF_INT128__)
typedef unsigned __int128 wide_t;

typedef struct {
    wide_t state, step;
    uint32_t kept; /* half of a number of 64 bits that has not been asked for yet */
    int has;
} Stream;

static uint32_t hashed(uint32_t value, uint32_t *constant, uint32_t times) {
    value ^= *constant;
    *constant *= times;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t mixed(uint32_t a, uint32_t b) {
    const uint32_t found = 0xca01f9ddu * a - 0x4973f715u * b;
    return found ^ found >> 16;
}

static uint64_t next(Stream *s) {
    s->state = s->state * ((wide_t)0x2360ED051FC65DA4u << 64 | 0x4385DF649FCCF645u) + s->step;
    const uint64_t high = (uint64_t)(s->state >> 64), both = high ^ (uint64_t)s->state;
    const int turn = (int)(high >> 58);
    return both >> turn | both << (-turn & 63);
}

static uint32_t next_half(Stream *s) {
    s->has = !s->has;
    if (!s->has) return s->kept;
    const uint64_t found = next(s);
    s->kept = (uint32_t)(found >> 32);
    return (uint32_t)found;
}

static Stream stream_of(uint64_t seed) {
    uint32_t pool[4] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0}, constant = 0x43b0d7e5u;
    uint64_t words[4];
    for (int i = 0; i < 4; i++) pool[i] = hashed(pool[i], &constant, 0x931e8875u);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (from != to) pool[to] = mixed(pool[to], hashed(pool[from], &constant, 0x931e8875u));
    constant = 0x8b51f9ddu;
    for (int i = 0; i < 4; i++) {
        words[i] = hashed(pool[2 * i % 4], &constant, 0x58f38dedu);
        words[i] |= (uint64_t)hashed(pool[(2 * i + 1) % 4], &constant, 0x58f38dedu) << 32;
    }
    Stream s = {.step = ((wide_t)words[2] << 64 | words[3]) << 1 | 1};
    next(&s);
    s.state += (wide_t)words[0] << 64 | words[1];
    next(&s);
    return s;
}

_Static_assert(sizeof(Stream) <= STREAM, "there is room for a stream");
EXPORT int64_t draw_bytes(void) { return sizeof(Stream); }

EXPORT void draw_pass(void *stream, int begin, uint64_t seed, const int64_t *rows, int64_t size, int64_t *into) {
    Stream s;
    if (begin) s = stream_of(seed);
    else memcpy(&s, stream, sizeof s);
    for (int64_t i = 0; i < size; i++) into[i] = rows[i];
    uint32_t mask = UINT32_MAX;
    for (int64_t i = size - 1; i > 0; i--) {
        uint32_t other;
        while (mask >> 1 >= i) mask >>= 1;
        while ((other = next_half(&s) & mask) > i) continue;
        const int64_t here = into[i];
        into[i] = into[other], into[other] = here;
    }
    memcpy(stream, &s, sizeof s);
}
#else
EXPORT int64_t draw_bytes(void) { return 0; }
EXPORT void draw_pass(void *stream, int begin, uint64_t seed, const int64_t *rows, int64_t size, int64_t *into) {
    (void)stream, (void)begin, (void)seed, (void)rows, (void)size, (void)into;
}
#endif
