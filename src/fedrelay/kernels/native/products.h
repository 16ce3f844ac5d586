/* Products of matrices whose rows are long, as those of a dense layer and its examples are. Rows are read where they lie: those
   of examples need not be side by side. */
#ifndef FEDRELAY_PRODUCTS_H
#define FEDRELAY_PRODUCTS_H
#include "plan.h"

/* Sums of n rows of `wide` numbers: in sum j, row i counts c[j * along + i * across] times. */
typedef struct {
    const float *const *rows;
    int n, count, wide;
    const float *c;
    int64_t along, across;
    int sparse;      /* whether many numbers of c are expected to be zero */
    float *into;     /* `count` rows side by side */
    float times;     /* the sums come there times this, */
    int add;         /* or are added to what is there */
} Sums;

/* `from` is the first of so many sums as are made at once. `vecs` registers are filled from number `first` of the rows on; if
   that is 0, the last one, of what does not fill another. */
typedef struct {
    /* out (n, count) = the products of n rows a[i] with each of `count` rows of b, side by side, all of `wide` numbers. */
    void (*dots)(const float *const *a, int n, const float *b, int count, int wide, float *out);
    void (*sums)(const Sums *s, int from, int64_t first, int vecs);
    /* The same by lists, with room for n each, of what is not zero: of which row how much. */
    void (*lists)(const Sums *s, const Entry *list, const int32_t *counts, int from, int64_t first, int vecs);
    /* Make those lists; how many numbers are in all of them. */
    int64_t (*listed)(const Sums *s, Entry *list, int32_t *counts);
    /* These registers of all rows side by side: what is far apart in memory may keep out each other of the cache. */
    void (*pack)(const float *const *rows, int n, int64_t first, int vecs, float *panel, const float **packed);
    int lanes, high, broad, most; /* numbers in a register; sums at once; registers of each, at most; in `lists` */
} Products;

/* Those for this processor, if there are any for rows of so many numbers; else NULL. */
const Products *products(int64_t wide);

/* Make these sums. `scratch` is of `sums_scratch` numbers; the rows `ahead` will be asked for next. */
void sum_rows(const Sums *s, float *scratch, const float *const *ahead, int ahead_count);

enum { ROWS = 64, PANEL = 8 * LINE }; /* rows that are added up at once, and columns of them, at most */
static inline int64_t sums_scratch(int64_t count) { return 2 * ROWS * count + lines(count) + ROWS * PANEL + 2 * ROWS; }
#endif
