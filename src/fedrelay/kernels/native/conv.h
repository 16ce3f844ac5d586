/* What dense.c and conv.c know of each other: what is in front of dense layers, above all convolutions, and dropout. */
#ifndef FEDRELAY_CONV_H
#define FEDRELAY_CONV_H
#include <stdint.h>

#include "recurrent.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* A convolution of stride 1, and what follows it: max-pooling of 2 x 2, ReLU, dropout, each if it is there. */
typedef struct {
    int64_t weight, bias; /* where they begin in the vector; bias -1: none */
    int32_t channels, height, width, filters, high, wide, down, right; /* images, filters, zeros on every side */
    int32_t pool, relu, share; /* kept of 65,536 numbers; 0: no dropout */
} Stage;

/* All that comes before the dense layers. */
typedef struct {
    const Stage *stages;
    const int16_t *bits;  /* random ones for all dropout of all steps, in the order in which it comes */
    float *scratch;       /* begins at a line of the cache */
    const Reader *reader; /* what reads tokens, instead of convolutions; NULL: nothing */
    int32_t count, share; /* of stages (at most STAGES); of dropout behind them, where images are rows of numbers */
} Front;

enum { STAGES = 16 };

/* So many numbers as fill whole lines of a cache: how a BLAS rounds depends on where its matrices begin. */
static inline int64_t lines(int64_t numbers) { return (numbers + 15) / 16 * 16; }

/* How many random bits, by sixteen, dropout takes of a stream: four at a time. */
static inline int64_t drawn(int64_t count, int share) { return share ? (count + 3) / 4 * 4 : 0; }
/* Keep of these numbers what the bits say; all if there is no dropout. */
void dropout(float *a, const int16_t *bits, int64_t count, int share);

/* The bits of `n` images in one step. */
int64_t front_drawn(const Front *front, int n);
/* Make the weights ready for a step. */
void front_begin(const Front *front, const float *w, int batch);
/* Image number i of n, (height, width, channels), becomes features, (filters, height, width). */
void front_forward(const Front *front, const float *w, const float *x, int batch, int n, int i, float *features);
/* Add what it says of the gradient to that of the step. */
void front_backward(const Front *front, const float *features, int batch, int n, int i);
/* The gradient of the step, times a factor, comes into the vector; or is added to what is there. */
void front_end(const Front *front, float *into, float times, int add, int batch);

/* Whether a dense layer is better gone back through in one pass (skinny.c), and how many numbers of scratch that needs. */
int skinny(int n, int inputs, int outputs);
int64_t skinny_scratch(int64_t outputs);
/* Of gradients d (n, outputs): that of the inputs x (n, inputs), unless NULL, and of the weights, times a factor, as above. */
void skinny_back(const float *d, const float *x, const float *w, float *target, float times, int add, int n, int inputs,
                 int outputs, float *into, float *scratch);
#endif
