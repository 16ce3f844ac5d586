/* What the files about LSTM layers share: their inner loops. */
#ifndef FEDRELAY_LOOPS_H
#define FEDRELAY_LOOPS_H
#include "plan.h"

enum { PANEL = 2 * LINE }; /* matrices are gone through by so many columns at a time */

typedef struct {
    /* c (m rows that are c_row apart, `wide` lines) = the product of a (m, k) and b (k, wide lines), or that is added to it.
       Number (i, t) of a is at i * down + t * along, one of which is 1; row t of panel p of b is at p * panel + t * apart. */
    void (*multiply)(const float *a, int64_t down, int64_t along, const float *b, int64_t apart, int64_t panel, float *c,
                     int64_t c_row, int m, int wide, int k, int add);
    /* One step of one sequence: what goes into the gates (input, forget, cell, output, `hidden` each) becomes what comes out
       of them; the cell's state, its tanh, and the hidden state to one or two places. */
    void (*step)(float *gates, const float *before, float *state, float *curved, float *to, float *also, int hidden);
    /* And back: what comes out of the gates becomes the gradient of what goes in. `own` and `above` (NULL: none) are gradients
       of the hidden state, `carried` that of the cell's state, from the step behind to the step before. */
    void (*back)(float *gates, const float *before, const float *curved, const float *own, const float *above, float *carried,
                 int hidden);
} Loops;

/* Those for this processor. */
const Loops *loops(void);
#endif
