/* A whole visit in one call: passes over a client's rows, each in the next of the orders that NumPy draws. */
#include "dense.h"

/* Until so many examples are done; `order` has room for the rows of a pass. Returns the sum of all losses, added up in float
   pass by pass; NaN as dense_descend. The rule is only read: several visits may have the same one at once. */
EXPORT double dense_visit(void *blas, const Front *front, const Layer *layers, int count, float *w, float *g, int64_t size,
                          const void *x, const int64_t *y, const int64_t *rows, int64_t many, int64_t examples,
                          uint64_t seed, int64_t *order, int batch, const Rule *rule, float *scratch) {
    Rule mine = *rule;
    char stream[STREAM];
    float total = 0;
    for (int64_t done = 0; done < examples; done += many) {
        draw_pass(stream, !done, seed, rows, many, order);
        const int64_t some = examples - done < many ? examples - done : many;
        total += (float)dense_descend(blas, front, layers, count, w, g, size, x, y, order, some, batch, &mine, scratch);
    }
    return total;
}
