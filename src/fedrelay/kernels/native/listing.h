/* What counts in sums of rows: lists of the numbers that are not zero. Included by products.c. */
#include <immintrin.h>

/* What is not zero, sum by sum; how many that is. */
static int64_t listed(const Sums *s, Entry *list, int32_t *counts) {
    int64_t all = 0;
    for (int j = 0; j < s->count; j++, list += s->n) {
        int32_t found = 0;
        for (int i = 0; i < s->n; i++) { /* no branches: nobody could foresee them */
            const float value = s->c[j * s->along + i * s->across];
            list[found] = (Entry){i, value};
            found += value != 0;
        }
        counts[j] = found, all += found;
    }
    return all;
}

/* Sixteen rows become columns. */
__attribute__((target("avx512f"))) INLINE void turned(__m512 *r) {
    __m512 t[16];
    UNROLL for (int i = 0; i < 16; i += 2)
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    UNROLL for (int g = 0; g < 16; g += 4)
        UNROLL for (int m = 0; m < 2; m++) {
            const __m512d one = _mm512_castps_pd(t[g + m]), two = _mm512_castps_pd(t[g + 2 + m]);
            r[g + 2 * m] = _mm512_castpd_ps(_mm512_unpacklo_pd(one, two));
            r[g + 2 * m + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(one, two));
        }
    UNROLL for (int m = 0; m < 4; m++) {
        const __m512 a = _mm512_shuffle_f32x4(r[m], r[4 + m], 0x88), b = _mm512_shuffle_f32x4(r[8 + m], r[12 + m], 0x88);
        const __m512 c = _mm512_shuffle_f32x4(r[m], r[4 + m], 0xdd), d = _mm512_shuffle_f32x4(r[8 + m], r[12 + m], 0xdd);
        t[m] = _mm512_shuffle_f32x4(a, b, 0x88), t[8 + m] = _mm512_shuffle_f32x4(a, b, 0xdd);
        t[4 + m] = _mm512_shuffle_f32x4(c, d, 0x88), t[12 + m] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
    UNROLL for (int i = 0; i < 16; i++) r[i] = t[i];
}

/* The same lists, of sixteen rows and sixteen sums at once, where numbers of neighbouring sums are neighbours. */
__attribute__((target("avx512f"))) static int64_t listed_512(const Sums *s, Entry *list, int32_t *counts) {
    if (s->along != 1) return listed(s, list, counts);
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    int64_t all = 0;
    for (int j = 0; j < s->count; j += 16) {
        const int broad = s->count - j < 16 ? s->count - j : 16;
        const __mmask16 columns = (__mmask16)((1u << broad) - 1);
        int32_t found[16] = {0};
        for (int i = 0; i < s->n; i += 16) {
            const __m512i where = _mm512_add_epi32(steps, _mm512_set1_epi32(i));
            __m512 r[16];
            UNROLL for (int k = 0; k < 16; k++)
                r[k] = i + k < s->n ? _mm512_maskz_loadu_ps(columns, s->c + j + (i + k) * s->across) : _mm512_setzero_ps();
            turned(r);
            UNROLL for (int l = 0; l < 16; l++) {
                if (l >= broad) break;
                const __mmask16 kept = _mm512_cmp_ps_mask(r[l], _mm512_setzero_ps(), _CMP_NEQ_UQ);
                const __m512i row = _mm512_maskz_compress_epi32(kept, where);
                const __m512i value = _mm512_castps_si512(_mm512_maskz_compress_ps(kept, r[l]));
                const int many = __builtin_popcount(kept);
                const uint32_t some = (1u << many) - 1; /* what is not written may be another list's */
                Entry *const to = list + (int64_t)(j + l) * s->n + found[l];
                _mm512_mask_storeu_epi64(to, (__mmask8)some, _mm512_permutex2var_epi32(row, low, value));
                _mm512_mask_storeu_epi64(to + 8, (__mmask8)(some >> 8), _mm512_permutex2var_epi32(row, high, value));
                found[l] += many;
            }
        }
        for (int l = 0; l < broad; l++) counts[j + l] = found[l], all += found[l];
    }
    return all;
}
