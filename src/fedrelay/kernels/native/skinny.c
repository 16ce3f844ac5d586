/* The way back through a dense layer of many weights with few examples: one pass over the weights, for the gradient of the
   inputs and the step, where two products of matrices would be two passes and copies for each. Gradients that ReLU or dropout
   has cut are left out. */
#include "plan.h"

#include <string.h>

enum { FEW = 16, MANY = 1 << 18 };

int skinny(int n, int inputs, int outputs) {
    return n <= FEW && inputs % LINE == 0 && (int64_t)inputs * outputs >= MANY;
}

int64_t skinny_scratch(int64_t outputs) { return 4 * FEW * outputs + lines(outputs) + LINE; }

void skinny_back(const float *d, const float *x, const float *w, float *target, float times, int add, int n, int inputs,
                 int outputs, float *into, float *scratch) {
    const Kernels *use = kernels();
    const int most = use->most < 10 ? use->most : 10;
    Entry *by_example = (Entry *)scratch, *by_output = by_example + FEW * outputs;
    int32_t *output_counts = (int32_t *)(by_output + FEW * outputs), example_counts[FEW] = {0};
    memset(output_counts, 0, sizeof(int32_t) * outputs);
    for (int i = 0; i < n; i++)
        for (int o = 0; o < outputs; o++) {
            const float value = d[i * outputs + o];
            by_example[i * outputs + example_counts[i]] = (Entry){o, value};
            by_output[o * FEW + output_counts[o]] = (Entry){i, times * value};
            example_counts[i] += value != 0, output_counts[o] += value != 0;
        }
    if (into) memset(into, 0, sizeof(float) * n * inputs);
    for (int first = 0; first < inputs; first += most * LINE) { /* so many columns of the weights stay in the caches */
        const int wide = inputs - first < most * LINE ? (inputs - first) / LINE : most;
        for (int i = 0; into && i < n; i++)
            use->gather(by_example + i * outputs, example_counts[i], w + first, inputs, 0, into + (int64_t)i * inputs + first, 0,
                        1, wide);
        for (int o = 0; o < outputs; o++) {
            float *here = target + (int64_t)o * inputs + first;
            if (!add) memset(here, 0, sizeof(float) * wide * LINE);
            use->gather(by_output + o * FEW, output_counts[o], x + first, inputs, 0, here, 0, 1, wide);
        }
    }
}
