/* What winograd.c uses of tiles.c. */
#ifndef FEDRELAY_TILING_H
#define FEDRELAY_TILING_H
#include "plan.h"

enum { PANEL = 64 }; /* channels that lie side by side for all tiles */

typedef struct {
    int out; /* outputs of a tile, along each side */
    void (*take)(const float *const *at, int channels, float *to, int64_t apart, int64_t panel);
    void (*take_slopes)(const float *const *at, int channels, float *to, int64_t apart, int64_t panel);
    void (*give)(const float *from, int64_t apart, float *const *at);
    void (*take_weights)(const float *from, int64_t each, int64_t tap, int count, int wide, float *to, int64_t apart);
    void (*turn)(const float *from, int64_t apart, float *to);
    void (*give_gradients)(const float *from, int64_t apart, float *to, int64_t each, int64_t tap, int count);
    void (*multiply)(const float *a, const float *b, float *c, int tiles, int channels);
    void (*correlate)(const float *a, const float *b, float *c, int tiles, int add);
} Tiling;

/* Those for this processor, and tiles of 2 x 2 or 4 x 4 outputs. */
const Tiling *tiling(int out);
#endif
