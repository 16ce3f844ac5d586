/* The whole of a client's training for a network that is a plain sequence of dense layers, with convolutions (conv.c) or LSTM
   layers (recurrent.c) before them or without: forward, cross-entropy, gradients written out, and the step, outside the
   interpreter. Products of matrices are those of products.c where rows are long, and else those of the BLAS whose sgemm the
   caller hands over. Nothing else is linked, so the library fits every version of Python and PyTorch.

   Sums go in a fixed order and products are not fused with additions (-ffp-contract=off): which of the compiled variants a
   processor takes does not change the bits of what is in this file. */
#include "dense.h"
#include "products.h"

#include <math.h>
#include <string.h>

typedef void (*sgemm_t)(const char *, const char *, const int *, const int *, const int *, const float *, const float *,
                        const int *, const float *, const int *, const float *, float *, const int *);

enum { ABI = 13 };

EXPORT int dense_abi(void) { return ABI; }
EXPORT void dense_bytes(int64_t *of) {
    of[0] = sizeof(Layer), of[1] = sizeof(Rule), of[2] = sizeof(Stage), of[3] = sizeof(Front);
    of[4] = sizeof(Cell), of[5] = sizeof(Reader), of[6] = sizeof(Visit);
}

/* c (m, n) = alpha op(a) op(b) + beta c, all row by row, by a BLAS that counts column by column. */
static void product(sgemm_t sgemm, int across_a, int across_b, int m, int n, int k, float alpha, const float *a, int lda,
                    const float *b, int ldb, float beta, float *c, int ldc) {
    sgemm(across_b ? "T" : "N", across_a ? "T" : "N", &n, &m, &k, &alpha, b, &ldb, a, &lda, &beta, c, &ldc);
}

WIDE static void relu(float *a, int64_t count) {
    for (int64_t i = 0; i < count; i++) a[i] = a[i] > 0 ? a[i] : (a[i] != a[i] ? a[i] : 0); /* NaN stays: it must show */
}

WIDE static void relu_back(float *d, const float *a, int64_t count) {
    for (int64_t i = 0; i < count; i++) d[i] = a[i] > 0 ? d[i] : 0;
}

WIDE static void add_to_rows(float *a, const float *bias, int count, int wide) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < wide; j++) a[(int64_t)i * wide + j] += bias[j];
}

WIDE static void add_rows(float *into, const float *rows, int count, int wide, float times) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < wide; j++) into[j] += times * rows[(int64_t)i * wide + j];
}

/* The bits of -110, whose power of e is zero in float as that of all that is less, and of minus infinity. */
static const uint32_t LEAST = 0xc2dc0000u, NO_MORE = 0xff800000u;

/* e to the power of numbers that are not above zero, by the series in double: all but some in a million are the nearest
   that there is in float, whatever mathematical library there is. */
WIDE static void exponentials(float *a, int64_t count) {
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: whole numbers are in the last bits of what is added to it */
    for (int64_t i = 0; i < count; i++) {
        uint32_t word;
        float power;
        memcpy(&word, a + i, sizeof word);
        const uint32_t less = -(uint32_t)(word - LEAST <= NO_MORE - LEAST); /* all bits, or none; NaN is not less */
        word = (less & LEAST) | (~less & word);
        memcpy(&power, &word, sizeof power);
        const double x = power, near = x * 1.4426950408889634 + magic;
        const double r = x - (near - magic) * 0.6931471805599453;
        double sum = 1.0 / 362880, scale;
        sum = sum * r + 1.0 / 40320;
        sum = sum * r + 1.0 / 5040;
        sum = sum * r + 1.0 / 720;
        sum = sum * r + 1.0 / 120;
        sum = sum * r + 1.0 / 24;
        sum = sum * r + 1.0 / 6;
        sum = sum * r + 0.5;
        sum = sum * r + 1;
        sum = sum * r + 1;
        uint64_t bits;
        memcpy(&bits, &near, sizeof bits);
        bits = (bits << 52) + ((uint64_t)1023 << 52);
        memcpy(&scale, &bits, sizeof scale);
        a[i] = (float)(sum * scale);
    }
}

/* The logits become their gradient; returns the sum of the losses. */
static double cross_entropy(float *z, const int64_t *y, const int64_t *which, int count, int classes) {
    double total = 0;
    for (int i = 0; i < count; i++) {
        float *row = z + (int64_t)i * classes, most = row[0];
        for (int j = 1; j < classes; j++) most = row[j] > most ? row[j] : most;
        for (int j = 0; j < classes; j++) row[j] -= most;
        total -= (double)row[y[which ? which[i] : i]];
    }
    exponentials(z, (int64_t)count * classes);
    for (int i = 0; i < count; i++) {
        float *row = z + (int64_t)i * classes, sum = 0;
        for (int j = 0; j < classes; j++) sum += row[j];
        total += (double)logf(sum);
        float share = 1.0f / (sum * (float)count);
        for (int j = 0; j < classes; j++) row[j] *= share;
        row[y[which ? which[i] : i]] -= 1.0f / (float)count;
    }
    return total;
}

WIDE static void forced(float *g, const float *w, const Rule *r, int64_t size) {
    const float strength = r->strength;
    if (r->anchor && strength != 0)
        for (int64_t i = 0; i < size; i++) g[i] += strength * (w[i] - r->anchor[i]);
    if (r->shift)
        for (int64_t i = 0; i < size; i++) g[i] += r->shift[i];
}

WIDE static void descend(float *w, float *g, const Rule *r, int64_t size) {
    const float lr = (float)r->lr, decay = r->weight_decay, factor = r->momentum;
    float *v = r->velocity;
    if (decay != 0)
        for (int64_t i = 0; i < size; i++) g[i] += decay * w[i];
    if (v)
        for (int64_t i = 0; i < size; i++) {
            v[i] = factor * v[i] + g[i];
            w[i] -= lr * v[i];
        }
    else
        for (int64_t i = 0; i < size; i++) w[i] -= lr * g[i];
}

WIDE static void adaptive(float *w, float *g, Rule *r, int64_t size) {
    const double first = 1 - pow(r->beta1, (double)r->steps), second = 1 - pow(r->beta2, (double)r->steps);
    const float rate = (float)(r->lr / first), root = (float)sqrt(second), eps = r->eps;
    const float new1 = (float)(1 - r->beta1), b2 = (float)r->beta2, new2 = (float)(1 - r->beta2), decay = r->weight_decay, kept = (float)(1 - r->lr * r->weight_decay);
    float *mean = r->velocity, *square = r->square;
    for (int64_t i = 0; i < size; i++) {
        float here = r->kind == ADAMW ? w[i] * kept : w[i];
        float slope = r->kind == ADAM ? g[i] + decay * here : g[i];
        mean[i] = mean[i] + new1 * (slope - mean[i]);
        square[i] = b2 * square[i] + new2 * slope * slope;
        w[i] = here - rate * mean[i] / (sqrtf(square[i]) / root + eps);
    }
}

static void shortened(float *g, float most, int64_t size) {
    double squares = 0;
    for (int64_t i = 0; i < size; i++) squares += (double)g[i] * g[i];
    float factor = most / ((float)sqrt(squares) + 1e-6f);
    if (!(factor >= 1))
        for (int64_t i = 0; i < size; i++) g[i] *= factor;
}

static int64_t widest(const Layer *layers, int count, int more) {
    int64_t wide = more ? layers->inputs : 0; /* what comes before the first layer needs a gradient, too */
    for (int i = 0; i < count; i++) wide = layers[i].outputs > wide ? layers[i].outputs : wide;
    return wide;
}

/* Numbers of scratch for pointers to rows, and for what `sum_rows` and `skinny_back` keep. */
static int64_t pointers(int64_t batch, int64_t most) { return lines(2 * (2 * batch + (batch > most ? batch : most))); }
static int64_t lists(int64_t batch, int64_t most) {
    const int64_t sums = sums_scratch(batch > most ? batch : most), few = skinny_scratch(most);
    return sums > few ? sums : few;
}

/* How many numbers of scratch a batch needs: its inputs, all activations, two gradients, pointers to rows, lists. */
EXPORT int64_t dense_scratch(const Layer *layers, int count, int more, int batch) {
    const int64_t most = widest(layers, count, 0);
    int64_t all = lines((int64_t)batch * layers->inputs) + 2 * lines(batch * widest(layers, count, more));
    for (int i = 0; i < count; i++) all += lines((int64_t)batch * layers[i].outputs);
    return all + pointers(batch, most) + lists(batch, most);
}

/* What all layers share in a step. */
typedef struct {
    sgemm_t sgemm;
    int n;
    const float **examples, **next, **rows; /* rows of this batch and of the one after it; of any matrix */
    int in_place, following;                /* whether the first layer reads its examples where they are stored; the next ones */
    float times, *lists;
    int add;                                /* what comes of gradients of weights: as in front_end */
} Step;

static const float *const *rows_of(const Step *s, const float *from, int count, int64_t wide) {
    for (int i = 0; i < count; i++) s->rows[i] = from + i * wide;
    return s->rows;
}

static void forward(const Step *s, const Layer *l, const float *w, const float *in, float *out, int first) {
    const Products *own = products(l->inputs);
    const float *bias = l->bias < 0 ? 0 : w + l->bias;
    const int apart = first && s->in_place;
    if (!own) {
        for (int i = 0; bias && i < s->n; i++) memcpy(out + (int64_t)i * l->outputs, bias, sizeof(float) * l->outputs);
        product(s->sgemm, 0, 1, s->n, l->outputs, l->inputs, 1, in, l->inputs, w + l->weight, l->inputs, bias != 0, out, l->outputs);
        return;
    }
    const float *const *rows = apart ? s->examples : rows_of(s, in, s->n, l->inputs);
    own->dots(rows, s->n, w + l->weight, l->outputs, l->inputs, out);
    if (bias) add_to_rows(out, bias, s->n, l->outputs);
}

/* From the gradient d of a layer's outputs, that of its inputs. */
static void back_to_inputs(const Step *s, const Layer *l, const float *w, const float *d, float *into) {
    if (!products(l->inputs)) {
        product(s->sgemm, 0, 0, s->n, l->inputs, l->outputs, 1, d, l->outputs, w + l->weight, l->inputs, 0, into, l->inputs);
        return;
    }
    const Sums sums = {
        .rows = rows_of(s, w + l->weight, l->outputs, l->inputs), .n = l->outputs, .count = s->n, .wide = l->inputs,
        .c = d, .along = l->outputs, .across = 1, .sparse = l->relu || l->share, .into = into, .times = 1,
    };
    sum_rows(&sums, s->lists, 0, 0);
}

/* And that of its weights. */
static void back_to_weights(const Step *s, const Layer *l, const float *in, const float *d, float *target, int first) {
    const int apart = first && s->in_place;
    if (!products(l->inputs)) {
        product(s->sgemm, 1, 0, l->outputs, l->inputs, s->n, s->times, d, l->outputs, in, l->inputs, s->add, target + l->weight,
                l->inputs);
        return;
    }
    const Sums sums = {
        .rows = apart ? s->examples : rows_of(s, in, s->n, l->inputs), .n = s->n, .count = l->outputs, .wide = l->inputs,
        .c = d, .along = 1, .across = l->outputs, .sparse = l->relu || l->share, .into = target + l->weight,
        .times = s->times, .add = s->add,
    };
    sum_rows(&sums, s->lists, s->next, apart ? s->following : 0);
}

EXPORT double dense_descend(void *blas, const Front *before_all, const Layer *layers, int count, float *w, float *g,
                            int64_t size, const void *x, const int64_t *y, const int64_t *which, int64_t rows, int batch,
                            Rule *r, float *scratch, const int64_t *then, int64_t soon) {
    const Layer *last = layers + count - 1;
    const int plain = r->kind == DESCENT && !r->velocity && r->weight_decay == 0 && r->clip == 0 && !r->shift &&
                      !(r->anchor && r->strength != 0);
    const float lr = (float)r->lr;
    double total = 0;
    Front front = *before_all;
    const Reader *const reader = front.reader;
    const int images = front.count > 0, more = images || reader;
    const int64_t wide = layers->inputs, room = lines(batch * widest(layers, count, more)), most = widest(layers, count, 0);
    const int64_t row = images ? (int64_t)front.stages->height * front.stages->width * front.stages->channels : wide;
    float *const gathered = scratch, *const lists_at = scratch + dense_scratch(layers, count, more, batch) - lists(batch, most);
    const float **const pointed = (const float **)(lists_at - pointers(batch, most));
    float *const gradients = (float *)pointed - 2 * room, *const target = plain ? w : g;
    Step s = {
        .sgemm = (sgemm_t)blas, .examples = pointed, .next = pointed + batch, .rows = pointed + 2 * batch,
        .in_place = !more && !front.share && products(wide), .times = plain ? -lr : 1, .add = plain, .lists = lists_at,
    };
    for (int64_t i = 0; i < rows; i++) {
        const int64_t class = y[which ? which[i] : i];
        if (class < 0 || class >= last->outputs) return NAN;
    }
    if (reader && !reader_takes(reader, x, which, rows)) return NAN;
    for (int64_t start = 0; start < rows; start += batch) {
        const int n = s.n = rows - start < batch ? (int)(rows - start) : batch;
        if (images) front_begin(&front, w, batch);
        if (reader)
            reader_forward(reader, w, (const int64_t *)x + (which ? 0 : start * reader->steps), which ? which + start : which, n,
                           gathered);
        for (int i = 0; !reader && i < n; i++) {
            s.examples[i] = (const float *)x + (which ? which[start + i] : start + i) * row;
            if (images) front_forward(&front, w, s.examples[i], batch, n, i, gathered + i * wide);
            else if (!s.in_place) memcpy(gathered + i * wide, s.examples[i], sizeof(float) * wide);
        }
        const int64_t left = rows - start - n, coming = left ? left : then ? soon : 0;
        const int64_t *const next = !left ? then : which ? which + start + n : 0;
        s.following = coming < batch ? (int)coming : batch;
        for (int i = 0; !reader && i < s.following; i++)
            s.next[i] = (const float *)x + (next ? next[i] : start + n + i) * row;
        const int16_t *bits = front.bits + front_drawn(&front, n);
        dropout(gathered, bits, n * wide, front.share);
        bits += drawn(n * wide, front.share);
        float *in = gathered, *out = gathered;
        int64_t length = lines(batch * wide); /* of what the layer before has made, in scratch */
        for (int i = 0; i < count; i++) {
            const Layer *l = layers + i;
            out = in + length;
            forward(&s, l, w, in, out, !i);
            if (l->relu) relu(out, (int64_t)n * l->outputs);
            dropout(out, bits, (int64_t)n * l->outputs, l->share);
            bits += drawn((int64_t)n * l->outputs, l->share);
            in = out;
            length = lines((int64_t)batch * l->outputs);
        }
        const int16_t *const after = bits;
        float *activation = out, *d = out, *into = gradients;
        total += cross_entropy(d, which ? y : y + start, which ? which + start : which, n, last->outputs);
        for (int i = count - 1; i >= 0; i--) {
            const Layer *l = layers + i;
            float *before = activation - lines((int64_t)batch * l->inputs);
            const int inner = i || more, few = inner && skinny(n, l->inputs, l->outputs);
            if (few)
                skinny_back(d, before, w + l->weight, target + l->weight, s.times, s.add, n, l->inputs, l->outputs, into, s.lists);
            if (inner) { /* before the weights move */
                const int share = i ? layers[i - 1].share : front.share;
                if (!few) back_to_inputs(&s, l, w, d, into);
                bits -= drawn((int64_t)n * l->inputs, share);
                dropout(into, bits, (int64_t)n * l->inputs, share);
                if (i && layers[i - 1].relu) relu_back(into, before, (int64_t)n * l->inputs);
            }
            if (!few) back_to_weights(&s, l, before, d, target, !i);
            if (l->bias >= 0) {
                if (!plain) memset(g + l->bias, 0, sizeof(float) * l->outputs);
                add_rows(target + l->bias, d, n, l->outputs, s.times);
            }
            d = into;
            into = into == gradients ? gradients + room : gradients;
            activation = before;
        }
        if (images) {
            for (int i = 0; i < n; i++) front_backward(&front, d + i * wide, batch, n, i);
            front_end(&front, target, s.times, s.add, batch);
        }
        if (reader) reader_backward(reader, d, n, target, s.times, s.add);
        front.bits = after;
        if (plain) continue;
        if (r->kind != DESCENT) r->steps++; /* a rule without memory may be that of several visits at once */
        if (r->clip > 0) shortened(g, r->clip, size);
        forced(g, w, r, size);
        if (r->kind == DESCENT) descend(w, g, r, size);
        else adaptive(w, g, r, size);
    }
    return total;
}
