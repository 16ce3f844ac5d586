/* The inner loops of convolutions for several kinds of processors. Here products are fused with additions where the
   processor can (unlike in dense.c), so bits depend on its kind, as those of a BLAS do. */
#if defined(__clang__)
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=fast")
#endif
#include "plan.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
#define PIXELS 6

#if defined(__x86_64__)
#define NAME(x) x##_512
#define TARGET __attribute__((target("avx512f")))
#define LANES 16
#define BLOCK 4
#define MOST 20
#include "block.h"
#undef NAME
#undef TARGET
#undef LANES
#undef BLOCK
#undef MOST

#define NAME(x) x##_256
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define BLOCK 1
#define MOST 6
#include "block.h"
#undef NAME
#undef TARGET
#undef LANES
#undef BLOCK
#undef MOST
#endif

#define NAME(x) x##_128
#define TARGET
#define LANES 4
#define BLOCK 1
#define MOST 6
#include "block.h"

static int widest = 16;

const Kernels *kernels(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (widest >= 16 && __builtin_cpu_supports("avx512f")) return &kernels_512;
    if (widest >= 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &kernels_256;
#endif
    return &kernels_128;
}

/* Do as on a processor with registers of so many numbers at most; how many there are. For tests. */
EXPORT int front_lanes(int most) {
    widest = most;
    return kernels()->lanes;
}
