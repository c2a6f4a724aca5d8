// Attention of many rows at once, each over the keys and values of its own conversation (called by wide.py).
//
// Keys of a conversation and head are stored in tiles of 16 positions, [ctx / 16][head_dim / 2][16][2], values in pairs of
// positions, [ctx / 2][head_dim][2], both bf16, so that an instruction that multiplies pairs needs no sum across lanes.
// All keys and values of the rows are written before any is read, so rows of one conversation may run together.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace {

using bf16 = uint16_t;

inline float wide(bf16 x) {
    const uint32_t bits = uint32_t(x) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

inline bf16 narrow(float x) {  // to the nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bf16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

struct Sizes {
    int heads, kv_heads, head_dim, ctx;
    int queries() const { return heads / kv_heads; }
    size_t plane() const { return size_t(ctx) * head_dim; }  // elements of one conversation and head
};

constexpr int MOST_QUERIES = 8, MOST_DIM = 256;

// Dimension i is rotated with i + head_dim / 2.
void rotate(const bf16* x, const float* cos, const float* sin, int head_dim, bf16* out) {
    const int half = head_dim / 2;
    for (int i = 0; i < half; i++) {
        const float a = wide(x[i]), b = wide(x[half + i]);
        out[i] = narrow(a * cos[i] - b * sin[i]);
        out[half + i] = narrow(b * cos[i] + a * sin[i]);
    }
}

typedef float Lanes __attribute__((vector_size(64)));

// acc[16] + pairs x[16][2] · the pair p
inline Lanes multiplied(Lanes acc, const bf16* x, uint32_t p) {
#ifdef __AVX512BF16__
    return (Lanes)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_loadu_si512(x), (__m512bh)_mm512_set1_epi32(int(p)));
#else
    const float p0 = wide(bf16(p)), p1 = wide(bf16(p >> 16));
    for (int i = 0; i < 16; i++) acc[i] += wide(x[2 * i]) * p0 + wide(x[2 * i + 1]) * p1;
    return acc;
#endif
}

// Prefetches two lines (of 64 bytes) that are read later.
inline void fetch(const bf16* x) {
    __builtin_prefetch(x, 0, 2);
    __builtin_prefetch(x + 32, 0, 2);
}

inline uint32_t pair(const bf16* x) {
    uint32_t out;
    std::memcpy(&out, x, 4);
    return out;
}

// Queries q[Q][head_dim] that share keys and values, over positions 0 … last; out[Q][head_dim].
template <int Q>
void read(const bf16* q, const bf16* keys, const bf16* values, int last, const Sizes& s, float* scores, bf16* shares, bf16* out) {
    const int d = s.head_dim, tiles = last / 16 + 1, row = tiles * 16;
    const float scale = 1.0f / std::sqrt(float(d));
    for (int t = 0; t < tiles; t++) {
        Lanes acc[Q][2] = {};  // two chains each, so that an instruction need not wait for the previous one
        const bf16* tile = keys + size_t(t) * 16 * d;
        for (int i = 0; i < d / 2; i += 2) {
            fetch(values + size_t(t) * 16 * d + i * 32);
            for (int j = 0; j < Q; j++) {
                acc[j][0] = multiplied(acc[j][0], tile + i * 32, pair(q + j * d + 2 * i));
                acc[j][1] = multiplied(acc[j][1], tile + i * 32 + 32, pair(q + j * d + 2 * i + 2));
            }
        }
        for (int j = 0; j < Q; j++) {
            acc[j][0] += acc[j][1];
            std::memcpy(scores + j * row + t * 16, &acc[j][0], 64);
        }
    }
    float total[Q];
    for (int j = 0; j < Q; j++) {
        float* of = scores + j * row;
        float top = of[0], sum = 0;
        for (int i = 0; i <= last; i++) top = std::max(top, of[i]);
        for (int i = 0; i <= last; i++) of[i] = std::exp((of[i] - top) * scale);
        for (int i = 0; i <= last; i++) sum += of[i];
        for (int i = last + 1; i < row; i++) of[i] = 0;
        for (int i = 0; i < row; i++) shares[j * row + i] = narrow(of[i]);
        total[j] = sum;
    }
    constexpr int parts = Q <= 4 ? 4 : 2;  // of 16 dimensions, in registers
    for (int from = 0; from < d; from += 16 * parts) {
        Lanes acc[Q][parts] = {};
        for (int i = 0; i < row / 2; i++) {
            const bf16* at = values + (size_t(i) * d + from) * 2;
            if (from == 0) fetch(keys + s.plane() + size_t(i) * 2 * d), fetch(keys + s.plane() + size_t(i) * 2 * d + 64);  // mostly those of the next head
            for (int j = 0; j < Q; j++)
                for (int part = 0; part < parts; part++) acc[j][part] = multiplied(acc[j][part], at + 32 * part, pair(shares + j * row + 2 * i));
        }
        for (int j = 0; j < Q; j++)
            for (int i = 0; i < 16 * parts; i++) out[j * d + from + i] = narrow(acc[j][i / 16][i % 16] / total[j]);
    }
}

using Read = void (*)(const bf16*, const bf16*, const bf16*, int, const Sizes&, float*, bf16*, bf16*);
constexpr Read READ[MOST_QUERIES + 1] = {nullptr, read<1>, read<2>, read<3>, read<4>, read<5>, read<6>, read<7>, read<8>};

}  // namespace

// qkv [rows][(heads + 2 kv_heads) · head_dim]; slots and positions [rows]; cos and sin [ctx][head_dim / 2];
// keys and values [slots][kv_heads][ctx · head_dim]; out [rows][heads · head_dim]. Returns 0, or 1 for unsupported sizes.
extern "C" int attend(const bf16* qkv, int64_t rows, const int64_t* slots, const int64_t* positions, const float* cos, const float* sin, bf16* keys,
                      bf16* values, bf16* out, int heads, int kv_heads, int head_dim, int ctx) {
    const Sizes s{heads, kv_heads, head_dim, ctx};
    const int d = head_dim, half = d / 2, each = (heads + 2 * kv_heads) * d, group = s.queries();
    if (group < 1 || group > MOST_QUERIES || d > MOST_DIM || d % 64 || ctx % 16) return 1;
    bf16 turned[MOST_QUERIES * MOST_DIM];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t p = positions[r];
        for (int g = 0; g < kv_heads; g++) {
            const size_t plane = (size_t(slots[r]) * kv_heads + g) * s.plane();
            const bf16 *k = qkv + r * each + (heads + g) * d, *v = k + kv_heads * d;
            rotate(k, cos + p * half, sin + p * half, d, turned);
            bf16* tile = keys + plane + p / 16 * 16 * d + p % 16 * 2;
            bf16* two = values + plane + p / 2 * 2 * d + p % 2;
            for (int i = 0; i < d; i++) {
                tile[i / 2 * 32 + i % 2] = turned[i];
                two[2 * i] = v[i];
            }
        }
    }
    std::vector<float> scores(size_t(group) * ctx);
    std::vector<bf16> shares(size_t(group) * ctx);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t p = positions[r];
        for (int g = 0; g < kv_heads; g++) {
            const size_t plane = (size_t(slots[r]) * kv_heads + g) * s.plane();
            for (int j = 0; j < group; j++) rotate(qkv + r * each + (g * group + j) * d, cos + p * half, sin + p * half, d, turned + j * d);
            READ[group](turned, keys + plane, values + plane, int(p), s, scores.data(), shares.data(), out + (r * heads + g * group) * d);
        }
    }
    return 0;
}
