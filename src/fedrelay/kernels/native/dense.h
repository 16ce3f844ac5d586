/* Dense layers, how a step is made of a gradient, and what goes through examples step by step. */
#ifndef FEDRELAY_DENSE_H
#define FEDRELAY_DENSE_H
#include "conv.h"

enum { DESCENT = 0, ADAM = 1, ADAMW = 2 };

typedef struct {
    int64_t weight, bias; /* where they begin in the vector; bias -1: none */
    int32_t inputs, outputs, relu, share; /* dropout keeps `share` of 65,536 numbers; 0: there is none */
} Layer;

typedef struct {
    double lr, beta1, beta2;
    float *velocity, *square;    /* momentum or Adam's mean; Adam's mean of squares */
    const float *anchor, *shift; /* of a force on the gradient; may be NULL */
    int64_t steps;               /* taken so far, for Adam */
    float momentum, weight_decay, clip, strength, eps; /* clip 0: none */
    int32_t kind;
} Rule;

/* Go through `rows` examples in batches, a step each: the last one may be smaller. With `which` they are these rows of x and
   y, else all in order. Returns the sum of all losses, each before its step; NaN where a target is no class, or a token not in
   the table. x are numbers, or whole numbers where tokens are read. `scratch` begins at a line of the cache. With `then`, these
   `soon` rows of x are those that are asked for next. */
EXPORT double dense_descend(void *blas, const Front *before_all, const Layer *layers, int count, float *w, float *g,
                            int64_t size, const void *x, const int64_t *y, const int64_t *which, int64_t rows, int batch,
                            Rule *r, float *scratch, const int64_t *then, int64_t soon);

enum { STREAM = 64 }; /* bytes that a stream of random numbers has at most */

/* These rows in the next order of a stream, which begins with `seed` where `begin` says so. */
EXPORT void draw_pass(void *stream, int begin, uint64_t seed, const int64_t *rows, int64_t size, int64_t *into);

/* A whole visit: passes over `many` rows of x and y, the last of which ends where so many examples are done. */
typedef struct {
    const float *from; /* the model that was received, or NULL: it lies in w */
    float *w;          /* what becomes of it */
    const int64_t *rows;
    Rule *rule;
    int64_t many, examples, done;
    uint64_t seed;
    int32_t batch;
    float total; /* the sum of all losses, added up in float pass by pass; NaN as dense_descend */
    char stream[STREAM];
} Visit;
#endif
