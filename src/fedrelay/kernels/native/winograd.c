/* Convolutions of 3 x 3 with a zero on every side, by Winograd's minimal filtering (Lavin & Gray 2016): of a tile of 4 x 4
   pixels come 2 x 2 outputs by 16 multiplications a channel and filter, not 36; or of 6 x 6 pixels 4 x 4 by 36, not 144.
   Pixels and weights are taken to as many points as a tile has pixels, multiplied there, and taken back. Images are
   (height, width, channels), channels and filters come by panels of 64, weights are (filters, 3, 3, channels).

   A part of the tiles goes through all of it at a time, so that it stays in the caches. */
#include "tiling.h"

#include <string.h>

typedef struct {
    int32_t out, images, height, width, channels, filters;
} Filtering;

enum { TILES = 40, ROOM = 1 << 18 };

static int64_t across(const Filtering *f, int side) { return (side + f->out - 1) / f->out; }
static int64_t tiles(const Filtering *f) { return f->images * across(f, f->height) * across(f, f->width); }
static int64_t points(const Filtering *f) { return (f->out + 2) * (f->out + 2); }

/* How many tiles go through at a time: as many as the caches hold, and enough to be worth the way of the weights there. */
static int64_t some(const Filtering *f) {
    const int64_t fit = ROOM / (points(f) * (f->channels + f->filters)) / 2 * 2;
    const int64_t most = fit > TILES ? fit : TILES, all = tiles(f), parts = (all + most - 1) / most;
    return (all + parts - 1) / parts;
}

/* How many panels of weights, or of their gradient, are kept: all, or one if it is needed once. */
static int64_t kept(const Filtering *f, int panels) { return some(f) < tiles(f) ? panels : 1; }

/* How many numbers of scratch it needs, forward and both ways back. */
EXPORT int64_t winograd_scratch(const Filtering *f) {
    const int most = f->channels > f->filters ? f->channels : f->filters;
    return lines(most) * 2 + 9 * LINE * LINE + some(f) * points(f) * (f->channels + f->filters) +
           points(f) * kept(f, most / PANEL) * most * PANEL;
}

/* Where the pixels of tile number t are, `side` by `side` of them from so many before the tile on; `outside` is for those that
   are not of the image. */
static void places(const Filtering *f, int64_t t, int side, int before, int channels, float *images, float *outside, float **at) {
    const int64_t wide = across(f, f->width), high = across(f, f->height), image = t / (wide * high);
    const int64_t row = t / wide % high * f->out - before, column = t % wide * f->out - before;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            const int64_t r = row + i, c = column + j;
            const int inside = r >= 0 && r < f->height && c >= 0 && c < f->width;
            *at++ = inside ? images + ((image * f->height + r) * f->width + c) * channels : outside;
        }
}

/* A panel of weights (filters, 3, 3, channels) to the points, the filters side by side. */
static void turned(const Tiling *use, const Filtering *f, const float *w, float *block, float *to) {
    const int64_t channels = f->channels;
    for (int o = 0; o < PANEL; o += LINE)
        for (int k = 0; k < channels; k += LINE) {
            for (int t = 0; t < 9; t++) use->turn(w + (o * 9 + t) * channels + k, 9 * channels, block + t * LINE * LINE);
            use->take_weights(block, LINE, LINE * LINE, LINE, LINE, to + k * PANEL + o, channels * PANEL);
        }
}

/* Images x to y. Backward, it is the gradient of y to that of x: channels and filters change places, and the weights are
   turned around. */
EXPORT void winograd_filter(const Filtering *given, int backward, float *x, const float *w, float *y, float *scratch) {
    Filtering turn = *given;
    if (backward) turn.channels = given->filters, turn.filters = given->channels;
    const Filtering *const f = &turn;
    const Tiling *const use = tiling(f->out);
    const int64_t all = tiles(f), most = some(f), count = points(f), from = f->channels, into = f->filters;
    const int64_t each = count * from * PANEL, keep = kept(f, into / PANEL), side = f->out + 2;
    float *const zeros = scratch, *const lost = zeros + lines(from), *const block = lost + lines(into);
    float *const v = block + 9 * LINE * LINE, *const m = v + most * count * from, *const u = m + most * count * PANEL;
    float *at[36];
    memset(zeros, 0, sizeof(float) * from);
    for (int64_t first = 0; first < all; first += most) {
        const int n = (int)(all - first < most ? all - first : most);
        for (int t = 0; t < n; t++) {
            places(f, first + t, (int)side, 1, (int)from, x, zeros, at);
            use->take((const float *const *)at, (int)from, v + t * PANEL, n * from, (int64_t)n * PANEL);
        }
        for (int p = 0; p < into / PANEL; p++) {
            float *const here = u + p % keep * each;
            if (first == 0 && backward) use->take_weights(w + 8 * into + p * PANEL, 9 * into, -into, (int)from, PANEL, here, from * PANEL);
            else if (first == 0) turned(use, f, w + p * PANEL * 9 * from, block, here);
            for (int i = 0; i < count; i++)
                use->multiply(v + i * n * from, here + i * from * PANEL, m + i * n * PANEL, n, (int)from);
            for (int t = 0; t < n; t++) {
                places(f, first + t, f->out, 0, (int)into, y + p * PANEL, lost, at);
                use->give(m + t * PANEL, n * PANEL, at);
            }
        }
    }
}

/* Of images and the gradient of the outputs: that of the weights. */
EXPORT void winograd_gradient(const Filtering *f, float *x, float *dy, float *dw, float *scratch) {
    const Tiling *const use = tiling(f->out);
    const int64_t all = tiles(f), most = some(f), count = points(f), channels = f->channels, filters = f->filters;
    const int64_t each = count * filters * PANEL, keep = kept(f, (int)channels / PANEL), side = f->out + 2;
    const int64_t wide = channels > filters ? channels : filters;
    float *const zeros = scratch, *const v = zeros + lines(wide), *const d = v + most * count * channels;
    float *const u = d + most * count * filters;
    float *at[36];
    memset(zeros, 0, sizeof(float) * wide);
    for (int64_t first = 0; first < all; first += most) {
        const int n = (int)(all - first < most ? all - first : most);
        for (int t = 0; t < n; t++) {
            places(f, first + t, (int)side, 1, (int)channels, x, zeros, at);
            use->take((const float *const *)at, (int)channels, v + t * PANEL, n * channels, (int64_t)n * PANEL);
            places(f, first + t, f->out, 0, (int)filters, dy, zeros, at);
            use->take_slopes((const float *const *)at, (int)filters, d + t * PANEL, n * filters, (int64_t)n * PANEL);
        }
        for (int p = 0; p < channels / PANEL; p++) {
            float *const here = u + p % keep * each;
            for (int i = 0; i < count; i++)
                for (int q = 0; q < filters / PANEL; q++)
                    use->correlate(d + (i * filters + q * PANEL) * n, v + (i * channels + p * PANEL) * n,
                                   here + (i * filters + q * PANEL) * PANEL, n, first > 0);
            if (first + n == all)
                use->give_gradients(here, filters * PANEL, dw + p * PANEL, 9 * channels, channels, (int)filters);
        }
    }
}
