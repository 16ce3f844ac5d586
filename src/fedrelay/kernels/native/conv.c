/* Convolutions in front of dense layers, image by image, so that what belongs to an image stays in the caches: forward, and
   what is done once a step. conv_back.c is the way back. */
#include "plan.h"

#include <string.h>

static void *taken(const Front *front, Plan *plan, int64_t numbers) {
    float *here = front->scratch + plan->size;
    plan->size += lines(numbers);
    return here;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

Plan plan_of(const Front *front, int batch) {
    Plan plan = {.size = 0};
    int64_t y = 0, d = 0, out = 0, filters = 0, places = 0, room = 0;
    for (int k = 0; k < front->count; k++) {
        const Stage *s = front->stages + k;
        const int64_t all = (int64_t)rows(s) * columns(s);
        plan.at[k].in = taken(front, &plan, batch * inputs(s));
        plan.at[k].across = taken(front, &plan, s->high * taps(s) * lines(s->filters));
        plan.at[k].kernels = taken(front, &plan, s->filters * kernel(s));
        plan.at[k].gradient = taken(front, &plan, s->filters * (kernel(s) + 1));
        plan.at[k].largest = taken(front, &plan, (batch * outputs(s) + 3) / 4);
        y = larger(y, all * lines(s->filters));
        d = larger(d, larger(inputs(s), outputs(s)));
        out = larger(out, outputs(s));
        filters = larger(filters, s->filters);
        places = larger(places, all);
        room = larger(room, all * s->filters);
    }
    plan.out = taken(front, &plan, batch * out);
    plan.y = taken(front, &plan, y);
    plan.d[0] = taken(front, &plan, d);
    plan.d[1] = taken(front, &plan, d);
    plan.by_filter = taken(front, &plan, 2 * out);
    plan.by_place = taken(front, &plan, 2 * room);
    plan.filter_counts = taken(front, &plan, filters);
    plan.place_counts = taken(front, &plan, places);
    return plan;
}

/* How many numbers of scratch a batch needs. */
EXPORT int64_t front_scratch(const Front *front, int batch) { return plan_of(front, batch).size; }

int64_t front_drawn(const Front *front, int n) {
    int64_t all = 0;
    for (int k = 0; k < front->count; k++) all += drawn(n * outputs(front->stages + k), front->stages[k].share);
    return all;
}

WIDE void dropout(float *a, const int16_t *bits, int64_t count, int share) {
    const int limit = share - 32768;
    const float times = 65536.0f / (float)share;
    if (share)
        for (int64_t i = 0; i < count; i++) a[i] = bits[i] < limit ? a[i] * times : 0;
}

void image_dropout(const Stage *s, float *a, int64_t apart, const int16_t *bits, int i) {
    const int64_t wide = (int64_t)pooled(s, columns(s)) * s->filters;
    for (int r = 0; s->share && r < pooled(s, rows(s)); r++)
        dropout(a + r * apart, bits + i * outputs(s) + r * wide, wide, s->share);
}

void front_begin(const Front *front, const float *w, int batch) {
    const Plan plan = plan_of(front, batch);
    for (int k = 0; k < front->count; k++) {
        const Stage *s = front->stages + k;
        const Place *p = plan.at + k;
        const int64_t each = taps(s), whole = kernel_row(s), wide = lines(s->filters);
        memset(p->gradient, 0, sizeof(float) * s->filters * (kernel(s) + 1));
        memset(p->across, 0, sizeof(float) * s->high * each * wide);
        memset(p->kernels, 0, sizeof(float) * s->filters * kernel(s));
        for (int f = 0; f < s->filters; f++)
            for (int r = 0; r < s->high; r++) {
                const float *from = w + s->weight + (f * s->high + r) * each;
                float *across = p->across + r * each * wide + f;
                memcpy(p->kernels + f * kernel(s) + r * whole, from, sizeof(float) * each);
                for (int64_t t = 0; t < each; t++) across[t * wide] = from[t];
            }
    }
}

/* The largest of four, the first of equals, and which it is. NaN is larger than all: it must show. */
WIDE static void pool(const float *q, int64_t right, int64_t down, int filters, float *to, uint8_t *largest) {
    for (int f = 0; f < filters; f++) {
        const float b = q[f + right], c = q[f + down], d = q[f + down + right];
        float most = q[f];
        int which = 0;
        which = b > most || b != b ? 1 : which, most = b > most || b != b ? b : most;
        which = c > most || c != c ? 2 : which, most = c > most || c != c ? c : most;
        which = d > most || d != d ? 3 : which, most = d > most || d != d ? d : most;
        to[f] = most, largest[f] = (uint8_t)which;
    }
}

WIDE static void add_and_cut(float *a, const float *bias, int count, int relu) {
    for (int i = 0; bias && i < count; i++) a[i] += bias[i];
    for (int i = 0; relu && i < count; i++) a[i] = a[i] > 0 ? a[i] : (a[i] != a[i] ? a[i] : 0);
}

/* Max-pooling, bias and ReLU of one image, into rows that are so far apart. */
static void finish(const Stage *s, const float *w, const float *y, float *a, int64_t apart, uint8_t *largest) {
    const int64_t right = lines(s->filters), down = columns(s) * right;
    const int high = pooled(s, rows(s)), wide = pooled(s, columns(s)), filters = s->filters;
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++, largest += filters) {
            float *to = a + i * apart + (int64_t)j * filters;
            if (s->pool) pool(y + 2 * i * down + 2 * j * right, right, down, filters, to, largest);
            else memcpy(to, y + i * down + j * right, sizeof(float) * filters);
            add_and_cut(to, s->bias < 0 ? 0 : w + s->bias, filters, s->relu);
        }
}

void front_forward(const Front *front, const float *w, const float *x, int batch, int n, int i, float *features) {
    const Plan plan = plan_of(front, batch);
    const Kernels *use = kernels();
    const Stage *s = front->stages;
    const int16_t *bits = front->bits;
    const int64_t wide = (int64_t)s->width * s->channels;
    float *in = plan.at->in + i * inputs(s);
    memset(in, 0, sizeof(float) * inputs(s));
    for (int r = 0; r < s->height; r++) memcpy(in + origin(s) + r * row(s), x + r * wide, sizeof(float) * wide);
    for (int k = 0; k < front->count; k++, s++) {
        const Place *p = plan.at + k;
        const int64_t apart = row_after(front, k);
        float *a = activations(front, &plan, k, i);
        if (k + 1 < front->count) memset(p[1].in + i * inputs(s + 1), 0, sizeof(float) * inputs(s + 1));
        use->convolve(s, p->in + i * inputs(s), p->across, plan.y);
        finish(s, w, plan.y, a, apart, p->largest + i * outputs(s));
        image_dropout(s, a, apart, bits, i);
        bits += drawn(n * outputs(s), s->share);
    }
    const float *out = activations(front, &plan, front->count - 1, i);
    const int filters = s[-1].filters;
    const int64_t count = pixels(s - 1);
    for (int f = 0; f < filters; f++)
        for (int64_t p = 0; p < count; p++) features[f * count + p] = out[p * filters + f];
}

/* Images become features without a step: scratch is for a batch of one, and no stage has dropout. */
EXPORT void front_look(const Front *front, const float *w, const float *x, int64_t count, float *features) {
    const Stage *s = front->stages, *last = s + front->count - 1;
    const int64_t image = (int64_t)s->height * s->width * s->channels, wide = outputs(last);
    front_begin(front, w, 1);
    for (int64_t i = 0; i < count; i++) front_forward(front, w, x + i * image, 1, 1, 0, features + i * wide);
}

WIDE static void put(float *into, const float *from, int64_t count, float times, int add) {
    for (int64_t i = 0; i < count; i++) into[i] = (add ? into[i] : 0) + times * from[i];
}

void front_end(const Front *front, float *into, float times, int add, int batch) {
    const Plan plan = plan_of(front, batch);
    for (int k = 0; k < front->count; k++) {
        const Stage *s = front->stages + k;
        const float *gradient = plan.at[k].gradient;
        for (int64_t r = 0; r < (int64_t)s->filters * s->high; r++)
            put(into + s->weight + r * taps(s), gradient + r * kernel_row(s), taps(s), times, add);
        if (s->bias >= 0) put(into + s->bias, gradient + s->filters * kernel(s), s->filters, times, add);
    }
}
