/* A table of tokens and LSTM layers in front of dense layers: forward over all steps of a batch, and back through time.

   A layer has one row of inputs a step and sequence: what comes from the layer below, its own last hidden state, and a 1, for
   the biases. So its gates are one product of matrices a step, and the gradient of all its weights is another one of many
   steps. The first layer knows what its tokens put into the gates from a table, which is made once a step of descent for the
   tokens that are there; its rows have no part from below. */
#include "recurrent.h"

#include <string.h>

#include "loops.h"

enum { MANY = 256 }; /* gradients are gathered from so many rows at once, which the caches hold */

/* What a layer keeps: rows of inputs, gates, the cell's states (from before the first step on) and their tanh; its weights by
   panels, for forward and backward; their gradient, with the gates side by side. */
typedef struct {
    int64_t wide, row; /* numbers in a row of inputs without the 1, and how far rows are apart */
    float *in, *gates, *states, *curved, *across, *along, *gradient;
} Layer;

typedef struct {
    Layer at[CELLS];
    int64_t gates, gate_row, state_row, token_row; /* four times the hidden state; how far rows of this and that are apart */
    float *d[2], *carried;                         /* gradients of rows of inputs, of the cells' states */
    int32_t *numbers, *seen, *place; /* which of the tokens that are there is where; which these are, and where each is */
    float *rows, *table, *across, *along, *gradient, *row_gradient; /* of those: their rows, what comes into the gates, ... */
    int64_t size; /* of all this, in numbers */
} Room;

/* Rows of an odd number of lines do not fall into the same places of a cache. */
static int64_t odd(int64_t numbers) { return (lines(numbers) / LINE | 1) * LINE; }
static int64_t panels(int64_t columns, int64_t rows) { return (columns + PANEL - 1) / PANEL * PANEL * rows; }
static int wide_lines(int64_t numbers) { return (int)(lines(numbers) / LINE); }

/* With some room behind, because whole lines are read. */
static void *taken(const Reader *reader, Room *room, int64_t numbers) {
    float *here = reader->scratch + room->size;
    room->size += lines(numbers) + LINE;
    return here;
}

static Room room_for(const Reader *reader, int batch) {
    const int64_t hidden = reader->hidden, all = (int64_t)batch * reader->steps;
    const int64_t most = all < reader->tokens ? all : reader->tokens;
    Room room = {.gates = 4 * hidden, .gate_row = odd(4 * hidden), .state_row = lines(hidden)};
    room.token_row = lines(reader->embedding);
    for (int k = 0; k < reader->count; k++) {
        Layer *l = room.at + k;
        l->wide = (k ? hidden : 0) + hidden, l->row = odd(l->wide + 1);
        l->in = taken(reader, &room, all * l->row);
        l->gates = taken(reader, &room, all * room.gate_row);
        l->states = taken(reader, &room, (all + batch) * room.state_row);
        l->curved = taken(reader, &room, all * room.state_row);
        l->across = taken(reader, &room, panels(room.gates, l->wide + 1));
        l->along = taken(reader, &room, panels(l->wide, room.gates));
        l->gradient = taken(reader, &room, (l->wide + 1) * room.gate_row);
    }
    const int64_t widest = room.at[reader->count - 1].row;
    for (int k = 0; k < 2; k++) room.d[k] = taken(reader, &room, all * widest);
    room.carried = taken(reader, &room, batch * room.state_row);
    room.numbers = taken(reader, &room, all);
    room.seen = taken(reader, &room, most);
    room.place = taken(reader, &room, reader->tokens);
    room.rows = taken(reader, &room, most * room.token_row);
    room.table = taken(reader, &room, most * room.gate_row);
    room.across = taken(reader, &room, panels(room.gates, reader->embedding));
    room.along = taken(reader, &room, panels(reader->embedding, room.gates));
    room.gradient = taken(reader, &room, reader->embedding * room.gate_row);
    room.row_gradient = taken(reader, &room, most * room.token_row);
    return room;
}

/* How many numbers of scratch a batch needs. */
EXPORT int64_t reader_scratch(const Reader *reader, int batch) { return room_for(reader, batch).size; }

int reader_takes(const Reader *reader, const int64_t *x, const int64_t *which, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        for (int t = 0; t < reader->steps; t++) {
            const int64_t token = x[(which ? which[i] : i) * reader->steps + t];
            if (token < 0 || token >= reader->tokens) return 0;
        }
    return 1;
}

/* Weights (gates, columns), which become columns `from`, ... of all, by panels: with the gates in rows of panels of `rows`
   rows, and with the columns in rows. What fills up a panel is never looked at. */
static void pack(const float *w, int64_t gates, int64_t columns, int64_t from, float *across, int64_t rows, float *along) {
    for (int64_t first = 0; first < gates; first += PANEL) {
        const int64_t some = gates - first < PANEL ? gates - first : PANEL;
        float *to = across + first * rows + from * PANEL;
        for (int64_t k = 0; k < columns; k++, to += PANEL)
            for (int64_t g = 0; g < some; g++) to[g] = w[(first + g) * columns + k];
    }
    for (int64_t k = 0, some; k < columns; k += some) {
        const int64_t into = (from + k) % PANEL;
        some = columns - k < PANEL - into ? columns - k : PANEL - into;
        float *to = along + (from + k - into) * gates + into;
        for (int64_t g = 0; g < gates; g++) memcpy(to + g * PANEL, w + g * columns + k, sizeof(float) * some);
    }
}

static void pack_all(const Reader *reader, const Room *room, const float *w) {
    const int64_t gates = room->gates, hidden = reader->hidden;
    for (int k = 0; k < reader->count; k++) {
        const Cell *cell = reader->cells + k;
        const Layer *l = room->at + k;
        const int64_t rows = l->wide + 1, below = l->wide - hidden;
        if (k) pack(w + cell->weight, gates, hidden, 0, l->across, rows, l->along);
        pack(w + cell->recurrent, gates, hidden, below, l->across, rows, l->along);
        for (int64_t g = 0; g < gates; g++) {
            float *bias = l->across + g / PANEL * PANEL * rows + l->wide * PANEL + g % PANEL;
            *bias = cell->bias < 0 ? 0 : w[cell->bias + g] + w[cell->recurrent_bias + g];
        }
    }
    pack(w + reader->cells->weight, gates, reader->embedding, 0, room->across, reader->embedding, room->along);
}

/* Which tokens there are, in the order in which they come; how many. */
static int number_tokens(const Reader *reader, const Room *room, const int64_t *x, const int64_t *which, int n) {
    int count = 0;
    memset(room->place, -1, sizeof(int32_t) * reader->tokens);
    for (int i = 0; i < n; i++)
        for (int t = 0; t < reader->steps; t++) {
            const int64_t token = x[(which ? which[i] : i) * reader->steps + t];
            if (room->place[token] < 0) room->seen[count] = (int32_t)token, room->place[token] = count++;
            room->numbers[t * n + i] = room->place[token];
        }
    return count;
}

void reader_forward(const Reader *reader, const float *w, const int64_t *x, const int64_t *which, int n, float *features) {
    const Loops *use = loops();
    const Room room = room_for(reader, n);
    const int hidden = reader->hidden, wide = wide_lines(room.gates), count = number_tokens(reader, &room, x, which, n);
    pack_all(reader, &room, w);
    for (int i = 0; i < count; i++)
        memcpy(room.rows + i * room.token_row, w + reader->table + (int64_t)room.seen[i] * reader->embedding,
               sizeof(float) * reader->embedding);
    use->multiply(room.rows, room.token_row, 1, room.across, PANEL, (int64_t)reader->embedding * PANEL, room.table, room.gate_row,
                  count, wide, reader->embedding, 0);
    for (int k = 0; k < reader->count; k++) {
        const Layer *l = room.at + k, *next = k + 1 < reader->count ? l + 1 : 0;
        const int64_t below = l->wide - hidden;
        memset(l->states, 0, sizeof(float) * n * room.state_row);
        for (int i = 0; i < n; i++) memset(l->in + i * l->row + below, 0, sizeof(float) * hidden);
        for (int64_t r = 0; r < (int64_t)n * reader->steps; r++) l->in[r * l->row + l->wide] = 1;
        for (int t = 0; t < reader->steps; t++) {
            const int64_t first = (int64_t)t * n;
            float *gates = l->gates + first * room.gate_row;
            for (int i = 0; !k && i < n; i++)
                memcpy(gates + i * room.gate_row, room.table + room.numbers[first + i] * room.gate_row,
                       sizeof(float) * room.gate_row);
            use->multiply(l->in + first * l->row, l->row, 1, l->across, PANEL, (l->wide + 1) * PANEL, gates, room.gate_row, n,
                          wide, (int)l->wide + 1, !k);
            for (int i = 0; i < n; i++) {
                const int64_t r = first + i, last = t + 1 == reader->steps;
                float *to = last ? 0 : l->in + (r + n) * l->row + below, *out = last ? features + (int64_t)i * hidden : 0;
                use->step(gates + i * room.gate_row, l->states + r * room.state_row, l->states + (r + n) * room.state_row,
                          l->curved + r * room.state_row, to, next ? next->in + r * next->row : out, hidden);
            }
        }
    }
}

/* Have these numbers brought nearer while others are worked at. */
static void fetch(const float *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i += LINE) __builtin_prefetch(numbers + i, 0, 2);
}

WIDE static void add_to(float *into, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) into[i] += from[i];
}

/* A gradient (columns, gates) becomes (gates, columns), times a factor; or is added to what is there. */
static void put(float *into, const float *from, int64_t from_row, int64_t gates, int64_t columns, float times, int add) {
    for (int64_t g = 0; g < gates; g++)
        for (int64_t k = 0; k < columns; k++)
            into[g * columns + k] = (add ? into[g * columns + k] : 0) + times * from[k * from_row + g];
}

static void put_layer(const Reader *reader, const Room *room, int k, float *into, float times, int add) {
    const Cell *cell = reader->cells + k;
    const Layer *l = room->at + k;
    const int64_t below = l->wide - reader->hidden, row = room->gate_row;
    if (k) put(into + cell->weight, l->gradient, row, room->gates, below, times, add);
    put(into + cell->recurrent, l->gradient + below * row, row, room->gates, reader->hidden, times, add);
    if (cell->bias < 0) return;
    put(into + cell->bias, l->gradient + l->wide * row, row, room->gates, 1, times, add);
    put(into + cell->recurrent_bias, l->gradient + l->wide * row, row, room->gates, 1, times, add);
}

/* The gradient of the table of tokens, and of what the first layer makes of its rows. */
static void put_tokens(const Reader *reader, const Room *room, int count, float *into, float times, int add) {
    const Loops *use = loops();
    const int embedding = reader->embedding;
    use->multiply(room->rows, 1, room->token_row, room->table, room->gate_row, PANEL, room->gradient, room->gate_row, embedding,
                  wide_lines(room->gates), count, 0);
    put(into + reader->cells->weight, room->gradient, room->gate_row, room->gates, embedding, times, add);
    use->multiply(room->table, room->gate_row, 1, room->along, PANEL, room->gates * PANEL, room->row_gradient, room->token_row,
                  count, wide_lines(embedding), (int)room->gates, 0);
    float *table = into + reader->table;
    if (!add) memset(table, 0, sizeof(float) * reader->tokens * embedding);
    for (int i = 0; i < count; i++)
        put(table + (int64_t)room->seen[i] * embedding, room->row_gradient + i * room->token_row, 1, 1, embedding, times, add);
}

void reader_backward(const Reader *reader, const float *features, int n, float *into, float times, int add) {
    const Loops *use = loops();
    const Room room = room_for(reader, n);
    const int hidden = reader->hidden, steps = reader->steps, gates = (int)room.gates;
    const int chunk = n < MANY ? MANY / n : 1;
    int count = 0;
    for (int64_t r = 0; r < (int64_t)n * steps; r++) count = room.numbers[r] >= count ? room.numbers[r] + 1 : count;
    memset(room.table, 0, sizeof(float) * count * room.gate_row);
    for (int k = reader->count - 1; k >= 0; k--) {
        const Layer *l = room.at + k, *next = k + 1 < reader->count ? l + 1 : 0;
        const int64_t below = l->wide - hidden;
        /* Of all steps for the layer below; the first one has none, and keeps that of one step. */
        float *d = room.d[k % 2], *above = room.d[(k + 1) % 2];
        memset(room.carried, 0, sizeof(float) * n * room.state_row);
        for (int t = steps - 1; t >= 0; t--) {
            const int64_t first = (int64_t)t * n;
            float *here = l->gates + first * room.gate_row;
            for (int i = 0; i < n; i++) {
                const int64_t r = first + i, last = t + 1 == steps;
                const float *from = last ? features + (int64_t)i * hidden : 0;
                use->back(here + i * room.gate_row, l->states + r * room.state_row, l->curved + r * room.state_row,
                          last ? 0 : d + (k ? r + n : i) * l->row + below, next ? above + r * next->row : from,
                          room.carried + i * room.state_row, hidden);
                if (t) {
                    fetch(l->gates + (r - n) * room.gate_row, gates);
                    fetch(l->states + (r - n) * room.state_row, hidden);
                    fetch(l->curved + (r - n) * room.state_row, hidden);
                }
                if (!k) add_to(room.table + room.numbers[r] * room.gate_row, here + i * room.gate_row, gates);
            }
            if (k || t)
                use->multiply(here, room.gate_row, 1, l->along, PANEL, room.gates * PANEL, d + (k ? first : 0) * l->row, l->row,
                              n, wide_lines(l->wide), gates, 0);
            if (t % chunk == 0) {
                const int some = steps - t < chunk ? steps - t : chunk;
                use->multiply(l->in + first * l->row, 1, l->row, here, room.gate_row, PANEL, l->gradient, room.gate_row,
                              (int)l->wide + 1, wide_lines(gates), some * n, t + some < steps);
            }
        }
        put_layer(reader, &room, k, into, times, add);
    }
    put_tokens(reader, &room, count, into, times, add);
}
