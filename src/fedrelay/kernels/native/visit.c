/* A visit in few calls: passes over a client's rows, each in the next of the orders that NumPy draws. */
#include "dense.h"

/* So many passes, the last of which ends where so many examples are done; `order` has room for the rows of one. The stream
   begins with `seed` where `begin` says so, and else goes on. Returns `total` and all losses, added up in float pass by pass;
   NaN as dense_descend. */
EXPORT double dense_visit(void *blas, const Front *front, const Layer *layers, int count, float *w, float *g, int64_t size,
                          const void *x, const int64_t *y, const int64_t *rows, int64_t many, int64_t examples, int64_t passes,
                          void *stream, int begin, uint64_t seed, int64_t *order, int batch, Rule *rule, float *scratch,
                          double total) {
    float sum = (float)total;
    for (int64_t pass = 0; pass < passes && pass * many < examples; pass++) {
        const int64_t left = examples - pass * many, some = left < many ? left : many;
        draw_pass(stream, begin && !pass, seed, rows, many, order);
        sum += (float)dense_descend(blas, front, layers, count, w, g, size, x, y, order, some, batch, rule, scratch);
    }
    return sum;
}
