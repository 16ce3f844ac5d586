/* The way back through convolutions, which makes use of zeros. Of four numbers that were pooled only the largest has a
   gradient, and none has where ReLU or dropout has cut: of the gradients of a convolution's outputs a quarter to a tenth are
   left. Those are listed, by filter for the gradient of the weights and by place for that of the inputs. Both gradients are
   then sums of rows of memory by the numbers of a list, and as exact as plain convolution. */
#include "plan.h"

#include <string.h>

/* The gradients d of activations a become zero where ReLU has cut, and are added to that of the bias. */
WIDE static void cut(float *d, const float *a, float *bias, int filters, int relu) {
    for (int f = 0; relu && f < filters; f++) d[f] = a[f] > 0 ? d[f] : 0;
    for (int f = 0; f < filters; f++) bias[f] += d[f];
}

/* The gradients that are left by filter: where in the image, and how much. */
static void list_by_filter(const Stage *s, const Plan *plan, const float *d, int64_t apart, const uint8_t *largest) {
    const int high = pooled(s, rows(s)), wide = pooled(s, columns(s)), filters = s->filters, step = s->pool ? 2 : 1;
    const int32_t next = s->channels, below = (int32_t)row(s);
    const int64_t room = pixels(s);
    int32_t *const counts = plan->filter_counts;
    Entry *const lists = plan->by_filter;
    memset(counts, 0, sizeof(int32_t) * filters);
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++, largest += filters) {
            const float *here = d + i * apart + (int64_t)j * filters;
            const int32_t at = step * (i * below + j * next), four[4] = {at, at + next, at + below, at + below + next};
            for (int f = 0; f < filters; f++) { /* no branches: nobody could foresee them */
                const int32_t count = counts[f];
                lists[f * room + count] = (Entry){s->pool ? four[largest[f]] : at, here[f]};
                counts[f] = count + (here[f] != 0);
            }
        }
}

/* The same by place: of which filter, and how much. */
static void list_by_place(const Stage *s, const Plan *plan, const float *d, int64_t apart, const uint8_t *largest) {
    const int high = pooled(s, rows(s)), wide = pooled(s, columns(s)), filters = s->filters, step = s->pool ? 2 : 1;
    int32_t *counts = plan->place_counts;
    Entry *lists = plan->by_place;
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++, largest += filters, counts += step * step, lists += step * step * filters) {
            const float *here = d + i * apart + (int64_t)j * filters;
            uint64_t count = 0; /* of four lists, sixteen bits each */
            for (int f = 0; f < filters; f++) {
                const int which = s->pool ? largest[f] : 0;
                lists[which * filters + (count >> 16 * which & 65535)] = (Entry){f, here[f]};
                count += (uint64_t)(here[f] != 0) << 16 * which;
            }
            for (int q = 0; q < step * step; q++) counts[q] = count >> 16 * q & 65535;
        }
}

/* How many lines of a filter's row are summed at once: all, or shares as even as can be. */
static int lines_at_once(int64_t wide, int most) {
    const int64_t limit = most < 10 ? most : 10, shares = (wide + limit - 1) / limit;
    return (int)((wide + shares - 1) / shares);
}

static void add_weights(const Stage *s, const Plan *plan, const Kernels *use, const float *in, float *gradient) {
    const int64_t whole = kernel_row(s), wide = whole / LINE, room = pixels(s);
    const int joined = (s->high == 3 || s->high == 5) && s->high * wide <= use->most; /* the whole filter at once */
    const int high = joined ? s->high : 1, some = joined ? (int)wide : lines_at_once(wide, use->most);
    for (int r = 0; r < s->high; r += high)
        for (int64_t v = 0; v < wide; v += some)
            for (int f = 0; f < s->filters; f++)
                use->gather(plan->by_filter + f * room, plan->filter_counts[f], in + r * row(s) + v * LINE, 1, row(s),
                            gradient + f * kernel(s) + r * whole + v * LINE, whole, high, (int)(v + some < wide ? some : wide - v));
}

static void add_inputs(const Stage *s, const Plan *plan, const Kernels *use, const float *weights, float *into) {
    const int64_t whole = kernel_row(s), wide = whole / LINE;
    const int high = pooled(s, rows(s)), broad = pooled(s, columns(s)), step = s->pool ? 2 : 1;
    const int some = lines_at_once(wide, use->most);
    for (int r = 0; r < s->high; r++)
        for (int64_t v = 0; v < wide; v += some) {
            const Entry *list = plan->by_place;
            const int32_t *count = plan->place_counts;
            for (int i = 0; i < high; i++)
                for (int j = 0; j < broad; j++)
                    for (int q = 0; q < step * step; q++, list += s->filters, count++)
                        if (*count)
                            use->gather(list, *count, weights + r * whole + v * LINE, kernel(s), 0,
                                        into + (step * i + q / 2 + r) * row(s) + (step * j + q % 2) * s->channels + v * LINE, 0,
                                        1, (int)(v + some < wide ? some : wide - v));
        }
}

void front_backward(const Front *front, const float *features, int batch, int n, int i) {
    const Plan plan = plan_of(front, batch);
    const Kernels *use = kernels();
    const Stage *s = front->stages + front->count - 1;
    const int16_t *bits = front->bits + front_drawn(front, n);
    const int64_t count = pixels(s);
    float *d = plan.d[front->count % 2];
    for (int f = 0; f < s->filters; f++)
        for (int64_t p = 0; p < count; p++) d[p * s->filters + f] = features[f * count + p];
    for (int k = front->count - 1; k >= 0; k--, s--) {
        const Place *p = plan.at + k;
        const int64_t apart = row_after(front, k);
        const float *a = activations(front, &plan, k, i);
        const uint8_t *largest = p->largest + i * outputs(s);
        bits -= drawn(n * outputs(s), s->share);
        image_dropout(s, d, apart, bits, i);
        float *const bias = p->gradient + s->filters * kernel(s), *const here = plan.y; /* of this image: sums stay short */
        memset(here, 0, sizeof(float) * s->filters);
        for (int r = 0; r < pooled(s, rows(s)); r++)
            for (int j = 0; j < pooled(s, columns(s)); j++) {
                const int64_t at = r * apart + (int64_t)j * s->filters;
                cut(d + at, a + at, here, s->filters, s->relu);
            }
        for (int f = 0; f < s->filters; f++) bias[f] += here[f];
        list_by_filter(s, &plan, d, apart, largest);
        add_weights(s, &plan, use, p->in + i * inputs(s), p->gradient);
        if (!k) break; /* nobody asks for the gradient of the images */
        float *into = plan.d[k % 2];
        memset(into, 0, sizeof(float) * inputs(s));
        list_by_place(s, &plan, d, apart, largest);
        add_inputs(s, &plan, use, p->kernels, into);
        d = into + origin(s);
    }
}
