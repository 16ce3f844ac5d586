/* What the files about convolutions share: the geometry of a stage, where what lies in scratch, and the two inner loops. */
#ifndef FEDRELAY_PLAN_H
#define FEDRELAY_PLAN_H
#include "conv.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

enum { LINE = 16 }; /* numbers in a line of the cache: rows of filters, and filters, are filled up to whole lines */

/* A number of a list, and of what it is. */
typedef struct {
    int32_t where;
    float value;
} Entry;

/* What a stage keeps of a batch: images among their zeros; weights, with the filters of a tap side by side (for forward) and
   with the taps of a filter's row (for backward); the gradient, as the latter, and of the bias; which of four was largest. */
typedef struct {
    float *in, *across, *kernels, *gradient;
    uint8_t *largest;
} Place;

typedef struct {
    Place at[STAGES];
    float *out;           /* what the last stage makes of the batch */
    float *y, *d[2];      /* of one image: outputs before pooling, gradients */
    Entry *by_filter, *by_place; /* lists of gradients that are not zero, with so much room each as there may be */
    int32_t *filter_counts, *place_counts;
    int64_t size; /* of all this, in numbers */
} Plan;

Plan plan_of(const Front *front, int batch);

static inline int rows(const Stage *s) { return s->height + 2 * s->down - s->high + 1; }
static inline int columns(const Stage *s) { return s->width + 2 * s->right - s->wide + 1; }
static inline int pooled(const Stage *s, int side) { return s->pool ? side / 2 : side; }
static inline int64_t pixels(const Stage *s) { return (int64_t)pooled(s, rows(s)) * pooled(s, columns(s)); }
static inline int64_t outputs(const Stage *s) { return pixels(s) * s->filters; }
/* Of an image among its zeros: a row, all of it (and some room behind, because whole lines are read), where it begins. */
static inline int64_t row(const Stage *s) { return (int64_t)(s->width + 2 * s->right) * s->channels; }
static inline int64_t inputs(const Stage *s) { return lines((s->height + 2 * s->down) * row(s) + LINE); }
static inline int64_t origin(const Stage *s) { return s->down * row(s) + (int64_t)s->right * s->channels; }
/* Of a filter: a row, the same in whole lines, all of it. */
static inline int64_t taps(const Stage *s) { return (int64_t)s->wide * s->channels; }
static inline int64_t kernel_row(const Stage *s) { return lines(taps(s)); }
static inline int64_t kernel(const Stage *s) { return s->high * kernel_row(s); }

/* What stage k makes of image i, and the rows of it: it lies among the zeros of the next stage. */
static inline float *activations(const Front *front, const Plan *plan, int k, int i) {
    const Stage *s = front->stages + k;
    if (k + 1 == front->count) return plan->out + i * outputs(s);
    return plan->at[k + 1].in + i * inputs(s + 1) + origin(s + 1);
}
static inline int64_t row_after(const Front *front, int k) {
    const Stage *s = front->stages + k;
    return k + 1 < front->count ? row(s + 1) : (int64_t)pooled(s, columns(s)) * s->filters;
}

/* Dropout of image i in rows that are so far apart. */
void image_dropout(const Stage *s, float *a, int64_t apart, const int16_t *bits, int i);

typedef struct {
    /* All outputs of one image before bias and pooling, (rows, columns, filters in whole lines). */
    void (*convolve)(const Stage *s, const float *in, const float *across, float *y);
    /* into += the sum of value * from[where * unit ...] over a list: `high` rows, that are `apart` and `into_apart`, of `wide`
       lines each. */
    void (*gather)(const Entry *list, int count, const float *from, int64_t unit, int64_t apart, float *into,
                   int64_t into_apart, int high, int wide);
    int most, lanes; /* lines that all registers hold; numbers in one */
} Kernels;

/* Those for this processor. */
const Kernels *kernels(void);
#endif
