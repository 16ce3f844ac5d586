/* Whole visits, one after another: passes over a client's rows, each in the next of the orders that NumPy draws. Several
   threads, each with room of its own, may go through the same visits: whoever is free takes the next. */
#include "dense.h"

#include <string.h>
#if defined(_WIN32)
#include <windows.h>
static double now(void) { return 1e-3 * (double)GetTickCount64(); }
#else
#include <time.h>
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
#endif

/* The order of the pass that is next, if it is known, so that its first examples are called from memory before it begins. */
typedef struct {
    int64_t *order, visit; /* whose it is; -1: nobody's */
    char after[STREAM];    /* the stream behind it */
} Ahead;

static void draw_ahead(Ahead *ahead, const Visit *visits, int64_t whose, int begin) {
    const Visit *const v = visits + whose;
    if (!begin) memcpy(ahead->after, v->stream, STREAM);
    draw_pass(ahead->after, begin, v->seed, v->rows, v->many, ahead->order);
    ahead->visit = whose;
}

/* Makes pass after pass for so many seconds, at least one. Goes on with visit `at`, or takes the next if that is negative. Where
   this is to be called again it returns what `at` is then, and else `many`. `order` has room for the rows of any visit, twice,
   and `scratch` (and that of `front`) for batches of any. */
EXPORT int64_t dense_visits(void *blas, const Front *front, const Layer *layers, int count, float *g, int64_t size,
                            const void *x, const int64_t *y, int64_t *order, int64_t room, float *scratch, Visit *visits,
                            int64_t many, int64_t *next, int64_t at, double seconds) {
    const double until = now() + seconds;
    Ahead ahead = {.order = order + room, .visit = -1};
    for (;; at = -1) {
        if (at < 0) at = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
        if (at >= many) return many;
        Visit *const v = visits + at;
        if (v->from && !v->done) memcpy(v->w, v->from, sizeof(float) * size);
        while (v->done < v->examples) {
            const int64_t left = v->examples - v->done, some = left < v->many ? left : v->many;
            if (ahead.visit != at) draw_ahead(&ahead, visits, at, !v->done);
            memcpy(v->stream, ahead.after, STREAM);
            int64_t *const these = ahead.order;
            ahead = (Ahead){.order = these == order ? order + room : order, .visit = -1};
            const int64_t then = left > some ? at : __atomic_load_n(next, __ATOMIC_RELAXED); /* unless another takes it */
            const int known = then < many && !front->count && !front->reader;
            if (known) draw_ahead(&ahead, visits, then, then != at);
            v->total += (float)dense_descend(blas, front, layers, count, v->w, g, size, x, y, these, some, v->batch, v->rule,
                                             scratch, known ? ahead.order : 0, known ? visits[then].many : 0);
            v->done += some;
            if (now() >= until) return v->done < v->examples ? at : -1;
        }
    }
}
