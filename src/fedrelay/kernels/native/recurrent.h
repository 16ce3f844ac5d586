/* What dense.c and recurrent.c know of each other: a table of tokens and LSTM layers in front of dense layers. */
#ifndef FEDRELAY_RECURRENT_H
#define FEDRELAY_RECURRENT_H
#include <stdint.h>

/* An LSTM layer: where weights begin in the vector (of what comes in, of its own last step); biases -1: none. */
typedef struct {
    int64_t weight, recurrent, bias, recurrent_bias;
} Cell;

typedef struct {
    const Cell *cells;
    float *scratch;  /* begins at a line of the cache */
    int64_t table;   /* where the tokens' rows begin in the vector */
    int32_t count, tokens, embedding, hidden, steps; /* layers (at most CELLS), rows of the table, numbers in one, ... */
} Reader;

enum { CELLS = 8 };

/* Whether all tokens of these sequences are in the table. */
int reader_takes(const Reader *reader, const int64_t *x, const int64_t *which, int64_t rows);
/* Sequences number `which[0]`, ... (all in order without) become the last hidden states, (n, hidden). */
void reader_forward(const Reader *reader, const float *w, const int64_t *x, const int64_t *which, int n, float *features);
/* Of their gradient: that of the weights, times a factor, comes into the vector; or is added to what is there. */
void reader_backward(const Reader *reader, const float *features, int n, float *into, float times, int add);
#endif
