// Fused attention on a CPU: softmax(scale q k^T + table) v with any distance table, its gradient, and interval masks.
//
// No dependency but the standard library, so that sanitizers can run it outside Python. Vectors are the compiler's own
// (GCC, Clang), as wide as the machine; T is float or double.
//
// Work in base 2: scores carry log2(e), so that exp2 is the only exponential. Results below 2^-126 are zero, and denormals
// are flushed within the scope of a worker: decaying biases would otherwise slow every product down.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace lengthen {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64, MR = 12;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32, MR = 6;
#else
constexpr int VECTOR_BYTES = 16, MR = 6;
#endif

template <class T> struct Simd {
  static constexpr int W = VECTOR_BYTES / sizeof(T);
  using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef T V __attribute__((vector_size(VECTOR_BYTES)));
  typedef T U __attribute__((vector_size(VECTOR_BYTES), aligned(alignof(T)), may_alias));  // unaligned
  typedef Bits I __attribute__((vector_size(VECTOR_BYTES)));
};
template <class T> using Vec = typename Simd<T>::V;
template <class T> inline Vec<T> load(const T* p) { return *reinterpret_cast<const typename Simd<T>::U*>(p); }
template <class T> inline void store(T* p, Vec<T> x) { *reinterpret_cast<typename Simd<T>::U*>(p) = x; }
template <class T> inline Vec<T> all(T x) { return x - Vec<T>{}; }

// Flush-to-zero and denormals-are-zero, for the life of the object only.
struct FlushDenormals {
#if defined(__SSE__)
  unsigned before = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  uint64_t before;
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" ::"r"(before | (uint64_t(1) << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

// Of 2^x on [-1/2, 1/2], least relative error 1.9e-9.
constexpr float C0 = 1.0000000006f, C1 = 6.9314720574e-01f, C2 = 2.4022646890e-01f, C3 = 5.5503287772e-02f;
constexpr float C4 = 9.6184889938e-03f, C5 = 1.3399931140e-03f, C6 = 1.5345802136e-04f;

// 2^x by rounding to n = round(x) and a polynomial on [-1/2, 1/2]; 0 below 2^-126; NaN stays NaN.
inline Vec<float> exp2v(Vec<float> x) {
  using I = Simd<float>::I;
  const Vec<float> t = x + 12582912.f, f = x - (t - 12582912.f);
  Vec<float> p = f * C6 + C5;
  p = p * f + C4, p = p * f + C3, p = p * f + C2, p = p * f + C1, p = p * f + C0;
  const I bits = (I)p + ((I)t << 23);
  return x != x ? x : (Vec<float>)(bits & ~(I)(x < -126.f));  // the payload of a NaN would reach the exponent
}
inline Vec<double> exp2v(Vec<double> x) {
  using I = Simd<double>::I;
  const Vec<double> t = x + 6755399441055744.0, f = (x - (t - 6755399441055744.0)) * 0.69314718055994530942;
  Vec<double> p = all<double>(1.0 / 6227020800.0);
  const double c[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                      1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0, 1.0};
  for (double a : c) p = p * f + a;
  const I bits = (I)p + ((I)t << 52);
  return x != x ? x : (Vec<double>)(bits & ~(I)(x < -1022.0));
}

template <class T> inline T sum_of(Vec<T> x) { T s = 0; for (int i = 0; i < Simd<T>::W; ++i) s += x[i]; return s; }
template <class T> inline T max_of(Vec<T> x) { T s = x[0]; for (int i = 1; i < Simd<T>::W; ++i) s = x[i] > s ? x[i] : s; return s; }

// ---- C[MR, 2W] (+)= A[MR, depth] B[depth, 2W]; A by strides, B a packed panel, C row-major.
template <class T, int ROWS, bool ADD>
inline void micro(int64_t depth, const T* a, int64_t row, int64_t col, const T* b, T* c, int64_t ldc) {
  constexpr int W = Simd<T>::W;
  Vec<T> x[ROWS], y[ROWS];
  for (int r = 0; r < ROWS; ++r) x[r] = y[r] = Vec<T>{};
  for (int64_t k = 0; k < depth; ++k, b += 2 * W, a += col) {
    const Vec<T> b0 = load(b), b1 = load(b + W);
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; ++r) {
      const Vec<T> s = all(a[r * row]);
      x[r] += s * b0;
      y[r] += s * b1;
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    // Added only now: a sum that began at C would round every small term to C's size.
    T* to = c + r * ldc;
    store(to, ADD ? load(to) + x[r] : x[r]);
    store(to + W, ADD ? load(to + W) + y[r] : y[r]);
  }
}

// Rows that are not a multiple of MR.
template <class T, bool ADD, int R = MR - 1>
inline void micro_tail(int64_t rows, int64_t depth, const T* a, int64_t row, int64_t col, const T* b, T* c, int64_t ldc) {
  if constexpr (R > 0) {
    if (rows == R) micro<T, R, ADD>(depth, a, row, col, b, c, ldc);
    else micro_tail<T, ADD, R - 1>(rows, depth, a, row, col, b, c, ldc);
  }
}

// C[rows, panels * 2W] (+)= A B, with B in panels of `depth` x 2W that lie `step` apart.
template <class T, bool ADD>
inline void product(int64_t rows, int64_t panels, int64_t depth, const T* a, int64_t row, int64_t col, const T* b, int64_t step,
                    T* c, int64_t ldc) {
  constexpr int N = 2 * Simd<T>::W;
  for (int64_t p = 0; p < panels; ++p) {
    int64_t r = 0;
    for (; r + MR <= rows; r += MR) micro<T, MR, ADD>(depth, a + r * row, row, col, b + p * step, c + r * ldc + p * N, ldc);
    micro_tail<T, ADD>(rows - r, depth, a + r * row, row, col, b + p * step, c + r * ldc + p * N, ldc);
  }
}

// ---- packing. Panels are 2W wide; what is beyond the end is zero.
// x[n, d] -> panels over n: out[n / 2W][d][2W], for products with x^T.
template <class T> inline void pack_transposed(const T* x, int64_t ld, int64_t n, int64_t d, T* out) {
  constexpr int N = 2 * Simd<T>::W;
  for (int64_t j = 0; j < n; j += N, out += d * N)
    for (int64_t i = 0; i < N; ++i) {
      const T* from = x + (j + i) * ld;
      if (j + i < n) for (int64_t k = 0; k < d; ++k) out[k * N + i] = from[k];
      else for (int64_t k = 0; k < d; ++k) out[k * N + i] = 0;
    }
}
// x[n, d] -> panels over d: out[d / 2W][n][2W], for products with x.
template <class T> inline void pack(const T* x, int64_t ld, int64_t n, int64_t d, T* out) {
  constexpr int N = 2 * Simd<T>::W;
  for (int64_t k = 0; k < d; k += N, out += n * N) {
    const int64_t wide = std::min<int64_t>(N, d - k);
    for (int64_t j = 0; j < n; ++j) {
      std::memcpy(out + j * N, x + j * ld + k, wide * sizeof(T));
      for (int64_t i = wide; i < N; ++i) out[j * N + i] = 0;
    }
  }
}

template <class T> inline T norm(const T* x, int64_t d) {
  T s = 0;
  for (int64_t k = 0; k < d; ++k) s += x[k] * x[k];
  return std::sqrt(s);
}
template <class T> inline bool finite(const T* x, int64_t d) {
  T s = 0;  // 0 * x is 0 for finite x and NaN otherwise
  for (int64_t k = 0; k < d; ++k) s += x[k] * T(0);
  return s == T(0);
}

// ---- the problem
template <class T> struct Rows {  // [B, heads, tokens, D], channels side by side
  T* data;
  int64_t batch, head, token;
  T* at(int64_t b, int64_t h, int64_t t) const { return data + b * batch + h * head + t * token; }
};
// Of n tokens from t0: the largest norm (NaN if one is), and whether all numbers are finite.
template <class T> inline T longest(const Rows<const T>& x, int64_t b, int64_t h, int64_t t0, int64_t n, int64_t d) {
  T most = 0;
  for (int64_t t = t0; t < t0 + n; ++t) {
    const T length = norm(x.at(b, h, t), d);
    most = length > most || length != length ? length : most;
  }
  return most;
}
template <class T> inline bool sound(const Rows<const T>& x, int64_t b, int64_t h, int64_t t0, int64_t n, int64_t d) {
  bool good = true;
  for (int64_t t = t0; t < t0 + n; ++t) good &= finite(x.at(b, h, t), d);
  return good;
}

// A bias that is piecewise linear in x = psi(distance) factor(row): slopes[h, s] x + offsets[h, s], with s the number of
// knots below x. psi rises with the distance, so the columns of a segment adjoin.
template <class T> struct Warp {
  const T* psi = nullptr;                             // laid out as a table, and 16 more that are finite
  const T *factor = nullptr, *slopes = nullptr, *offsets = nullptr;  // [1 or B, Q], [H, S + 1], [H, S + 1]; times log2(e)
  const T* top = nullptr;                             // [H]: no bias of the head is larger
  const int32_t* edges = nullptr;                     // [1 or B, Q, S], falling: x lies above knot s on columns below edges[s]
  int64_t factor_stride = 0, edges_stride = 0, S = 0;  // strides of 0: rows of the batch share them
};

template <class T> struct Problem {
  int64_t B, H, G, Q, K, D;
  Rows<const T> q, k, v;
  T scale;                         // nats
  const T* table = nullptr;        // [1 or H, Q + K - 1]: score at column c - r + Q - 1, nats times log2(e)
  int64_t table_stride = 0;        // 0: heads share it
  const int32_t* seen = nullptr;   // [1 or B, Q, n, 2]: half-open intervals of keys
  int64_t seen_stride = 0, n = 0;  // 0: rows of the batch share them
  Warp<T> warp{};
  const int32_t* seen_by(int64_t b, int64_t r) const { return seen + b * seen_stride + r * n * 2; }
};

constexpr double LOG2E = 1.44269504088896340736;
// Rows x columns of a tile: 36 KiB of float scores. Both are multiples of MR and of a panel.
template <class T> constexpr int64_t row_block() { return sizeof(T) == 4 ? 48 : 24; }
template <class T> constexpr int64_t column_block() { return sizeof(T) == 4 ? 192 : 96; }
inline int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

// What is common to all heads: the hull of what a block of rows sees, per interval. Tiles are row_block x column_block.
struct Cut { int64_t first, last; };  // columns, half-open
template <class T> struct Visible {
  int64_t rows, n;
  std::vector<Cut> hulls;  // [1 or B][row blocks][n]
  int64_t stride;
  explicit Visible(const Problem<T>& p) : rows(blocks(p.Q, row_block<T>())), n(p.n), stride(p.seen_stride ? rows * n : 0) {
    const int64_t batches = p.seen_stride ? p.B : 1;
    hulls.assign(batches * rows * n, Cut{0, 0});
    for (int64_t b = 0; b < batches; ++b)
      for (int64_t r = 0; r < p.Q; ++r)
        for (int64_t s = 0; s < n; ++s) {
          const int32_t* at = p.seen_by(b, r) + 2 * s;
          if (at[0] < at[1]) join(hulls[(b * rows + r / row_block<T>()) * n + s], {at[0], at[1]});
        }
  }
  static void join(Cut& x, Cut y) { x = x.first == x.last ? y : Cut{std::min(x.first, y.first), std::max(x.last, y.last)}; }
  // The columns of a tile that some row of the block may see, counted from the tile's first; starts at a whole panel.
  Cut tile(int64_t b, int64_t block, int64_t c0, int64_t wide) const {
    constexpr int64_t N = 2 * Simd<T>::W;
    const Cut* x = hulls.data() + b * stride + block * n;
    Cut all{0, 0};
    for (int64_t s = 0; s < n; ++s) {
      const Cut here{std::max<int64_t>(x[s].first - c0, 0), std::min(x[s].last - c0, wide)};
      if (here.first < here.last) join(all, here);
    }
    return {all.first / N * N, all.last};
  }
};

// Calls each(s, from, to) for the segments of the warp that columns first .. first + wide of row r meet, from the left.
template <class T, class Each> inline void pieces(const Problem<T>& p, int64_t b, int64_t r, int64_t first, int64_t wide, Each&& each) {
  const int32_t* edges = p.warp.edges + b * p.warp.edges_stride + r * p.warp.S;
  int64_t from = 0;
  for (int64_t s = p.warp.S; s >= 0 && from < wide; --s) {
    const int64_t to = s ? std::min<int64_t>(edges[s - 1] - first, wide) : wide;
    if (to > from) each(s, from, to), from = to;
  }
}

// What is added to the scores of a row of a tile, in base 2: the table, or in `room` the warp with it; null: nothing.
template <class T> inline const T* added(const Problem<T>& p, int64_t b, int64_t h, int64_t r, int64_t first, int64_t wide, T* room) {
  constexpr int64_t W = Simd<T>::W;
  const int64_t at = p.Q - 1 - r + first;
  const T* table = p.table ? p.table + h * p.table_stride + at : nullptr;
  if (!p.warp.psi) return table;
  const T *psi = p.warp.psi + at, factor = p.warp.factor[b * p.warp.factor_stride + r];
  const T *slopes = p.warp.slopes + h * (p.warp.S + 1), *offsets = p.warp.offsets + h * (p.warp.S + 1);
  pieces(p, b, r, first, wide, [&](int64_t s, int64_t from, int64_t to) {  // what it writes too far, the next piece corrects
    const T slope = slopes[s] * factor, offset = offsets[s];
    for (int64_t c = from; c < to; c += W) store(room + c, load(psi + c) * slope + offset);
  });
  if (table) for (int64_t c = 0; c < wide; ++c) room[c] += table[c];
  return room;
}

// Largest score of the table over runs of columns, so that a tile's largest is a few comparisons.
template <class T> struct TableTop {
  static constexpr int64_t RUN = 32;
  std::vector<T> top;
  int64_t per_head = 0;
  explicit TableTop(const Problem<T>& p) {
    if (!p.table) return;
    const int64_t length = p.Q + p.K - 1, heads = p.table_stride ? p.H : 1;
    per_head = blocks(length, RUN);
    top.assign(heads * per_head, -std::numeric_limits<T>::infinity());
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t x = 0; x < length; ++x) {
        T& t = top[h * per_head + x / RUN];
        t = std::max(t, p.table[h * p.table_stride + x]);
      }
  }
  T over(const Problem<T>& p, int64_t h, int64_t first, int64_t last) const {
    return table_over(p, h, first, last) + (p.warp.psi ? p.warp.top[h] : T(0));
  }
  T table_over(const Problem<T>& p, int64_t h, int64_t first, int64_t last) const {
    if (!p.table) return 0;
    first = std::max<int64_t>(first, 0), last = std::min(last, p.Q + p.K - 2);
    T t = -std::numeric_limits<T>::infinity();
    const T* from = top.data() + (p.table_stride ? h * per_head : 0);
    for (int64_t x = first / RUN; x <= last / RUN; ++x) t = std::max(t, from[x]);
    return t;
  }
};

// Rounding of T, with room: everything that is dropped weighs less than 2^-NEGLIGIBLE of its row.
template <class T> constexpr T negligible() { return sizeof(T) == 4 ? 30 : 60; }

// One row of a tile: products -> scores in base 2, minus infinity on what the row does not see and up to a whole vector.
// Returns the largest; minus infinity: the row sees nothing here, and `s` is untouched.
template <class T>
inline T score_row(const Problem<T>& p, int64_t b, int64_t r, int64_t c0, int64_t wide, T scale2, const T* bias, T* s, T* spare) {
  constexpr int W = Simd<T>::W;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const int32_t* seen = p.seen_by(b, r);
  const int64_t c1 = c0 + wide, whole = wide / W * W, padded = blocks(wide, W) * W;
  bool full = false, some = false;
  for (int64_t i = 0; i < p.n; ++i) {
    full |= seen[2 * i] <= c0 && seen[2 * i + 1] >= c1;
    some |= std::max<int64_t>(seen[2 * i], c0) < std::min<int64_t>(seen[2 * i + 1], c1);
  }
  if (!some) return -infinity;
  Vec<T> best = all(-infinity);
  if (full && whole == wide) {
    if (bias)
      for (int64_t c = 0; c < wide; c += W) {
        const Vec<T> x = load(s + c) * scale2 + load(bias + c);
        store(s + c, x), best = x > best ? x : best;
      }
    else
      for (int64_t c = 0; c < wide; c += W) {
        const Vec<T> x = load(s + c) * scale2;
        store(s + c, x), best = x > best ? x : best;
      }
    return max_of<T>(best);
  }
  std::copy(s, s + wide, spare);
  std::fill(s, s + padded, -infinity);
  for (int64_t i = 0; i < p.n; ++i) {
    const int64_t from = std::max<int64_t>(seen[2 * i] - c0, 0), to = std::min<int64_t>(seen[2 * i + 1] - c0, wide);
    if (bias) for (int64_t c = from; c < to; ++c) s[c] = spare[c] * scale2 + bias[c];
    else for (int64_t c = from; c < to; ++c) s[c] = spare[c] * scale2;
  }
  for (int64_t c = 0; c < padded; c += W) { const Vec<T> x = load(s + c); best = x > best ? x : best; }
  // A row of NaN alone must not pass for one that sees nothing.
  const T most = max_of<T>(best);
  return most == -infinity ? -std::numeric_limits<T>::max() : most;
}

// Tiles of keys, with what is known of each; `own` packs what a pass needs besides the transposed keys.
template <class T> struct Tiles {
  int64_t count;              // per head
  std::vector<T> keys_t, top;  // panels; the largest norm among a tile's keys
  std::vector<uint8_t> sound;  // no NaN, no infinity among the tile's keys and values
};
template <class T, class Parallel, class Own> Tiles<T> tiles_of(const Problem<T>& p, Parallel&& parallel, Own&& own) {
  constexpr int64_t C = column_block<T>();
  const int64_t count = blocks(p.K, C), all = p.B * p.G * count;
  Tiles<T> x{count, std::vector<T>(all * C * p.D), std::vector<T>(all), std::vector<uint8_t>(all)};
  parallel(all, [&](int64_t i) {
    const int64_t t = i % count, g = i / count % p.G, b = i / count / p.G, c0 = t * C, n = std::min(C, p.K - c0);
    pack_transposed(p.k.at(b, g, c0), p.k.token, n, p.D, x.keys_t.data() + i * C * p.D);
    own(i, b, g, c0, n);
    x.top[i] = longest(p.k, b, g, c0, n, p.D);
    x.sound[i] = sound(p.k, b, g, c0, n, p.D) && sound(p.v, b, g, c0, n, p.D);
  });
  return x;
}

// ---- forward: out [B, H, Q, D], lse [B, H, Q] in base 2 (minus infinity where a row sees nothing, and out is 0)
template <class T, class Parallel>
void forward(const Problem<T>& p, Rows<T> out, T* lse, Parallel&& parallel) {
  constexpr int64_t R = row_block<T>(), C = column_block<T>(), W = Simd<T>::W, N = 2 * W;
  const int64_t DP = blocks(p.D, N) * N;
  const Visible<T> visible(p);
  const TableTop<T> table_top(p);
  std::vector<T> values(p.B * p.G * blocks(p.K, C) * C * DP);
  const Tiles<T> tiles = tiles_of(p, parallel, [&](int64_t i, int64_t b, int64_t g, int64_t c0, int64_t n) {
    pack(p.v.at(b, g, c0), p.v.token, n, p.D, values.data() + i * C * DP);
  });
  const T scale2 = p.scale * T(LOG2E), infinity = std::numeric_limits<T>::infinity();
  const T drop = negligible<T>() + std::log2(T(std::max<int64_t>(p.K, 1)));
  // Late rows see most: they start first, so that threads end together.
  parallel(p.B * p.H * visible.rows, [&](int64_t i) {
    const int64_t block = visible.rows - 1 - i / (p.B * p.H), bh = i % (p.B * p.H), b = bh / p.H, h = bh % p.H, g = h / (p.H / p.G);
    const int64_t r0 = block * R, rows = std::min(R, p.Q - r0);
    thread_local std::vector<T> memory;
    memory.resize(R * C + 2 * C + R * DP + W);
    T *s = memory.data(), *spare = s + R * C, *o = spare + C, *room = o + R * DP;
    T top[R], total[R];
    std::fill(o, o + R * DP, T(0)), std::fill(top, top + R, -infinity), std::fill(total, total + R, T(0));
    const T loudest = longest(p.q, b, h, r0, rows, p.D);
    for (int64_t t = tiles.count - 1; t >= 0; --t) {
      const int64_t c0 = t * C, held = std::min(C, p.K - c0), tile = (b * p.G + g) * tiles.count + t;
      const Cut cut = visible.tile(b, block, c0, held);
      if (cut.first >= cut.last) continue;
      const int64_t first = c0 + cut.first, wide = cut.last - cut.first;
      const T least = *std::min_element(top, top + rows);
      const T most = loudest * tiles.top[tile] * std::abs(scale2) +
                     table_top.over(p, h, first - (r0 + rows - 1) + p.Q - 1, first + wide - 1 - r0 + p.Q - 1);
      if (most < least - drop) continue;
      product<T, false>(rows, blocks(wide, N), p.D, p.q.at(b, h, r0), p.q.token, 1,
                        tiles.keys_t.data() + tile * C * p.D + cut.first * p.D, p.D * N, s, C);
      for (int64_t r = 0; r < rows; ++r) {
        T* row = s + r * C;
        const T* bias = added(p, b, h, r0 + r, first, wide, room);
        const T most_here = score_row(p, b, r0 + r, first, wide, scale2, bias, row, spare);
        if (most_here == -infinity) {
          std::fill(row, row + wide, T(0));
          continue;
        }
        const T now = std::max(top[r], most_here);
        Vec<T> sum{};
        for (int64_t c = 0; c < wide; c += W) { const Vec<T> e = exp2v(load(row + c) - now); sum += e; store(row + c, e); }
        const T shrink = top[r] == now ? T(1) : std::exp2(top[r] - now);
        total[r] = total[r] * shrink + sum_of<T>(sum), top[r] = now;
        if (shrink != T(1)) for (int64_t d = 0; d < DP; d += W) store(o + r * DP + d, load(o + r * DP + d) * shrink);
      }
      if (tiles.sound[tile])
        product<T, true>(rows, DP / N, wide, s, C, 1, values.data() + tile * C * DP + cut.first * N, held * N, o, DP);
      else  // a weight of zero must not meet an infinity
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < wide; ++c)
            if (s[r * C + c] != T(0))
              for (int64_t d = 0; d < p.D; ++d) o[r * DP + d] += s[r * C + c] * p.v.at(b, g, first + c)[d];
    }
    for (int64_t r = 0; r < rows; ++r) {
      const T share = total[r] == T(0) ? T(0) : T(1) / total[r];
      T* to = out.at(b, h, r0 + r);
      for (int64_t d = 0; d < p.D; ++d) to[d] = o[r * DP + d] * share;
      lse[bh * p.Q + r0 + r] = total[r] == T(0) ? -infinity : top[r] + std::log2(total[r]);
    }
  });
}

// ---- forward for few queries: bound by reading keys and values once, so nothing is packed, and keys are shared out
template <class T> inline T dot(const T* a, const T* b, int64_t d) {
  constexpr int W = Simd<T>::W;
  Vec<T> sum{};
  int64_t i = 0;
  for (; i + W <= d; i += W) sum += load(a + i) * load(b + i);
  T rest = sum_of<T>(sum);
  for (; i < d; ++i) rest += a[i] * b[i];
  return rest;
}
template <class T, class Parallel>
void forward_few(const Problem<T>& p, Rows<T> out, T* lse, Parallel&& parallel) {
  constexpr int64_t CHUNK = 512, W = Simd<T>::W;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const int64_t chunks = blocks(p.K, CHUNK), group = p.H / p.G, D = p.D;
  std::vector<T> partial(p.B * p.H * p.Q * chunks * (D + 2));  // largest score, sum, output
  parallel(p.B * p.G * chunks, [&](int64_t i) {
    const int64_t chunk = i % chunks, g = i / chunks % p.G, b = i / chunks / p.G, c0 = chunk * CHUNK, wide = std::min(CHUNK, p.K - c0);
    T s[CHUNK + W], spare[CHUNK + W], room[CHUNK + W];
    for (int64_t h = g * group; h < (g + 1) * group; ++h)
      for (int64_t r = 0; r < p.Q; ++r) {
        T* to = partial.data() + (((b * p.H + h) * p.Q + r) * chunks + chunk) * (D + 2);
        to[0] = -infinity;
        int64_t first = wide, last = 0;
        for (int64_t n = 0; n < p.n; ++n) {
          const int64_t from = std::max<int64_t>(p.seen_by(b, r)[2 * n] - c0, 0), until = std::min<int64_t>(p.seen_by(b, r)[2 * n + 1] - c0, wide);
          if (from < until) first = std::min(first, from), last = std::max(last, until);
        }
        if (first >= last) continue;
        const T* q = p.q.at(b, h, r);
        for (int64_t c = first; c < last; ++c) s[c - first] = dot(q, p.k.at(b, g, c0 + c), D);
        const T* bias = added(p, b, h, r, c0 + first, last - first, room);
        to[0] = score_row(p, b, r, c0 + first, last - first, p.scale * T(LOG2E), bias, s, spare);
        for (int64_t c = 0; c < last - first; c += W) store(s + c, exp2v(load(s + c) - to[0]));
        T *o = to + 2, total = 0;
        for (int64_t c = 0; c < last - first; ++c) {
          const T weight = s[c], *v = p.v.at(b, g, c0 + first + c);
          if (weight == T(0)) continue;
          total += weight;
          int64_t d = 0;
          for (; d + W <= D; d += W) store(o + d, load(o + d) + load(v + d) * weight);
          for (; d < D; ++d) o[d] += v[d] * weight;
        }
        to[1] = total;
      }
  });
  parallel(p.B * p.H * p.Q, [&](int64_t i) {
    const T* from = partial.data() + i * chunks * (D + 2);
    T top = -infinity, total = 0, *to = out.at(i / p.Q / p.H, i / p.Q % p.H, i % p.Q);
    for (int64_t c = 0; c < chunks; ++c) top = std::max(top, from[c * (D + 2)]);
    std::fill(to, to + D, T(0));
    for (int64_t c = 0; c < chunks; ++c) {
      const T* x = from + c * (D + 2);
      if (x[0] == -infinity) continue;
      const T weight = std::exp2(x[0] - top);
      total += weight * x[1];
      for (int64_t d = 0; d < D; ++d) to[d] += weight * x[2 + d];
    }
    for (int64_t d = 0; d < D; ++d) to[d] = total == T(0) ? T(0) : to[d] / total;
    lse[i] = total == T(0) ? -infinity : top + std::log2(total);
  });
}

// ---- backward
template <class T> struct Gradients {
  Rows<T> q, k, v;
  T* table = nullptr;  // [1 or H, Q + K - 1], in the units of the table, or null
  T *psi = nullptr, *factor = nullptr, *slopes = nullptr, *offsets = nullptr;  // of the warp, or all null
};

// What one item of the backward pass finds of the warp's gradients. x is d loss / d bias of a row of a tile, zero where unseen.
template <class T> struct WarpSums {
  T *psi, *factor;           // [Q + K - 1], [Q]
  double *slopes, *offsets;  // [S + 1]: rows of x add up to nothing, so that what is left is small beside its parts
  // Adds x psi and x over the segments, and leaves x slope factor in `room`, for the diagonals.
  void row(const Problem<T>& p, int64_t b, int64_t h, int64_t r, int64_t first, int64_t wide, const T* x, T* room) const {
    constexpr int64_t W = Simd<T>::W;
    const T *at = p.warp.psi + p.Q - 1 - r + first, own = p.warp.factor[b * p.warp.factor_stride + r];
    T of_factor = 0;
    pieces(p, b, r, first, wide, [&](int64_t s, int64_t from, int64_t to) {
      const T slope = p.warp.slopes[h * (p.warp.S + 1) + s];
      Vec<T> sums{}, warped{};
      int64_t c = from;
      for (; c + W <= to; c += W) {
        const Vec<T> y = load(x + c);
        sums += y, warped += y * load(at + c);
        store(room + c, y * (slope * own));
      }
      T sum = sum_of<T>(sums), total = sum_of<T>(warped);
      for (; c < to; ++c) sum += x[c], total += x[c] * at[c], room[c] = x[c] * (slope * own);
      of_factor += slope * total;
      slopes[s] += double(own) * total, offsets[s] += sum;
    });
    factor[r] += of_factor;
  }
};

// Queries and incoming gradients of a head, in panels per block of rows, with what a block's tiles need to know.
template <class T> struct PackedRows {
  std::vector<T> q, g, delta, longest, least;  // least: smallest lse of a block's rows
  std::vector<uint8_t> sound;
};
template <class T, class Parallel>
PackedRows<T> pack_rows(const Problem<T>& p, Rows<const T> out, Rows<const T> grad, const T* lse, int64_t row_blocks, Parallel&& parallel) {
  constexpr int64_t R = row_block<T>(), N = 2 * Simd<T>::W;
  const int64_t DP = blocks(p.D, N) * N, heads = p.B * p.H;
  PackedRows<T> x;
  x.q.resize(heads * row_blocks * R * DP), x.g.resize(x.q.size()), x.delta.resize(heads * p.Q);
  x.longest.resize(heads * row_blocks), x.least.resize(heads * row_blocks), x.sound.resize(heads * row_blocks);
  parallel(heads * row_blocks, [&](int64_t i) {
    const int64_t block = i % row_blocks, bh = i / row_blocks, b = bh / p.H, h = bh % p.H, r0 = block * R, rows = std::min(R, p.Q - r0);
    pack(p.q.at(b, h, r0), p.q.token, rows, p.D, x.q.data() + i * R * DP);
    pack(grad.at(b, h, r0), grad.token, rows, p.D, x.g.data() + i * R * DP);
    T least = std::numeric_limits<T>::infinity();
    for (int64_t r = r0; r < r0 + rows; ++r) {
      const T *g = grad.at(b, h, r), *o = out.at(b, h, r), l = lse[bh * p.Q + r];
      T dot = 0;
      for (int64_t d = 0; d < p.D; ++d) dot += g[d] * o[d];
      x.delta[bh * p.Q + r] = dot;
      if (l != -std::numeric_limits<T>::infinity()) least = std::min(least, l);
    }
    x.least[i] = least, x.longest[i] = longest(p.q, b, h, r0, rows, p.D);
    x.sound[i] = sound(p.q, b, h, r0, rows, p.D) && sound(grad, b, h, r0, rows, p.D);
  });
  return x;
}

// Sums of a tile's diagonals. Row r adds to buffer r mod W, shifted by whole vectors only: no store is read back unaligned.
template <class T> struct Diagonals {
  static constexpr int64_t W = Simd<T>::W, R = row_block<T>(), LENGTH = R + column_block<T>() + W;
  T* at;  // [W][LENGTH]
  T* row(int64_t r) const { return at + (r % W) * LENGTH + R - (r - r % W); }
  // x of row 0, column 0 of the tile is `origin`.
  void fold(int64_t origin, T* table, int64_t length) const {
    for (int64_t b = 0; b < W; ++b) {
      T* from = at + b * LENGTH;
      const int64_t shift = origin - R - b, first = std::max<int64_t>(0, -shift), last = std::min(LENGTH, length - shift);
      for (int64_t i = first; i < last; ++i) table[shift + i] += from[i];
      std::fill(from, from + LENGTH, T(0));
    }
  }
};

template <class T, class Parallel>
void backward(const Problem<T>& p, Rows<const T> out, Rows<const T> grad, const T* lse, Gradients<T> into, int64_t threads,
              Parallel&& parallel) {
  constexpr int64_t R = row_block<T>(), C = column_block<T>(), W = Simd<T>::W, N = 2 * W;
  const int64_t DP = blocks(p.D, N) * N, heads = p.B * p.H, group = p.H / p.G, length = p.Q + p.K - 1;
  const Visible<T> visible(p);
  const TableTop<T> table_top(p);
  const PackedRows<T> rows_of = pack_rows(p, out, grad, lse, visible.rows, parallel);
  const T scale2 = p.scale * T(LOG2E), drop = negligible<T>() + std::log2(T(std::max<int64_t>(p.K, 1)));

  std::vector<T> keys(p.B * p.G * blocks(p.K, C) * C * DP), values_t(p.B * p.G * blocks(p.K, C) * C * p.D);
  const Tiles<T> known = tiles_of(p, parallel, [&](int64_t i, int64_t b, int64_t g, int64_t c0, int64_t n) {
    pack(p.k.at(b, g, c0), p.k.token, n, p.D, keys.data() + i * C * DP);
    pack_transposed(p.v.at(b, g, c0), p.v.token, n, p.D, values_t.data() + i * C * p.D);
  });
  const int64_t tiles = known.count;
  const auto wanted = [&](int64_t b, int64_t h, int64_t block, int64_t t) -> Cut {
    const int64_t r0 = block * R, r1 = std::min(r0 + R, p.Q) - 1, c0 = t * C, at = (b * p.H + h) * visible.rows + block;
    const Cut cut = visible.tile(b, block, c0, std::min(C, p.K - c0));
    if (cut.first >= cut.last) return {0, 0};
    const T most = rows_of.longest[at] * known.top[(b * p.G + h / group) * tiles + t] * std::abs(scale2) +
                   table_top.over(p, h, c0 + cut.first - r1 + p.Q - 1, c0 + cut.last - 1 - r0 + p.Q - 1);
    return most < rows_of.least[at] - drop ? Cut{0, 0} : cut;
  };

  // A head is cut into chunks of columns where there are few heads for the threads; each chunk has sums of its own, which
  // are added in a fixed order. Chunk c takes tiles c, c + chunks, ...: equal shares of a triangle.
  const int64_t chunks = threads == 1 || heads >= 4 * threads ? 1 : std::min(tiles, blocks(4 * threads, heads));
  std::vector<T> dq(chunks * heads * p.Q * DP), dk(heads * p.K * DP), dv(dk.size()), dt(into.table ? chunks * heads * length : 0);
  const int64_t warped = into.psi ? chunks * heads : 0, S = p.warp.S + 1;
  std::vector<T> of_psi(warped * length), of_factor(warped * p.Q);
  std::vector<double> of_lines(warped * 2 * S);
  std::vector<int64_t> cost(chunks * heads), order(chunks * heads);
  parallel(chunks * heads, [&](int64_t i) {
    const int64_t chunk = i / heads, b = i % heads / p.H, h = i % heads % p.H;
    order[i] = i;
    for (int64_t t = chunk; t < tiles; t += chunks)
      for (int64_t block = 0; block < visible.rows; ++block) {
        const Cut cut = wanted(b, h, block, t);
        cost[i] += cut.last - cut.first;
      }
  });
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return cost[a] > cost[b]; });

  parallel(chunks * heads, [&](int64_t nth) {
    const int64_t item = order[nth], chunk = item / heads, bh = item % heads, b = bh / p.H, h = bh % p.H, g = h / group;
    std::vector<T> memory(2 * R * C + 2 * C + W + 2 * W * Diagonals<T>::LENGTH);
    T *s = memory.data(), *ds = s + R * C, *spare = ds + R * C, *room = spare + C;
    const Diagonals<T> diagonals{room + C + W}, of_warp{diagonals.at + W * Diagonals<T>::LENGTH};
    const WarpSums<T> sums_of_warp{of_psi.data() + item * length, of_factor.data() + item * p.Q, of_lines.data() + item * 2 * S,
                                   of_lines.data() + (item * 2 + 1) * S};
    for (int64_t t = chunk; t < tiles; t += chunks) {
      const int64_t c0 = t * C, held = std::min(C, p.K - c0), tile = (b * p.G + g) * tiles + t;
      for (int64_t block = 0; block < visible.rows; ++block) {
        const Cut cut = wanted(b, h, block, t);
        if (cut.first >= cut.last) continue;
        const int64_t r0 = block * R, rows = std::min(R, p.Q - r0), at = bh * visible.rows + block;
        const int64_t first = c0 + cut.first, wide = cut.last - cut.first, panel = tile * C * p.D + cut.first * p.D;
        T* own_dq = dq.data() + ((chunk * heads + bh) * p.Q + r0) * DP;
        T *own_dk = dk.data() + (bh * p.K + first) * DP, *own_dv = dv.data() + (bh * p.K + first) * DP;
        product<T, false>(rows, blocks(wide, N), p.D, p.q.at(b, h, r0), p.q.token, 1, known.keys_t.data() + panel, p.D * N, s, C);
        product<T, false>(rows, blocks(wide, N), p.D, grad.at(b, h, r0), grad.token, 1, values_t.data() + panel, p.D * N, ds, C);
        for (int64_t r = 0; r < rows; ++r) {
          T *row = s + r * C, *slope = ds + r * C;
          const T* bias = added(p, b, h, r0 + r, first, wide, room);
          if (score_row(p, b, r0 + r, first, wide, scale2, bias, row, spare) == -std::numeric_limits<T>::infinity()) {
            std::fill(row, row + wide, T(0)), std::fill(slope, slope + wide, T(0));
            continue;
          }
          const T centre = lse[bh * p.Q + r0 + r], delta = rows_of.delta[bh * p.Q + r0 + r];
          T* sums = into.table ? diagonals.row(r) : nullptr;
          for (int64_t c = 0; c < wide; c += W) {
            const Vec<T> e = exp2v(load(row + c) - centre), x = e * (load(slope + c) - delta);
            const Vec<T> shown = (Vec<T>)((typename Simd<T>::I)x & (typename Simd<T>::I)(e != T(0)));
            store(row + c, e), store(slope + c, shown);
            if (sums) store(sums + c, load(sums + c) + shown);
          }
          if (!into.psi) continue;
          sums_of_warp.row(p, b, h, r0 + r, first, wide, slope, room);
          T* along = of_warp.row(r);
          for (int64_t c = 0; c < wide; ++c) along[c] += room[c];
        }
        if (into.table) diagonals.fold(first - r0 + p.Q - 1, dt.data() + item * length, length);
        if (into.psi) of_warp.fold(first - r0 + p.Q - 1, sums_of_warp.psi, length);
        if (known.sound[tile] && rows_of.sound[at]) {
          product<T, true>(wide, DP / N, rows, s, 1, C, rows_of.g.data() + at * R * DP, rows * N, own_dv, DP);
          product<T, true>(wide, DP / N, rows, ds, 1, C, rows_of.q.data() + at * R * DP, rows * N, own_dk, DP);
          product<T, true>(rows, DP / N, wide, ds, C, 1, keys.data() + tile * C * DP + cut.first * N, held * N, own_dq, DP);
          continue;
        }
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < wide; ++c) {
            const T e = s[r * C + c], x = ds[r * C + c];
            if (e == T(0)) continue;
            for (int64_t d = 0; d < p.D; ++d) {
              own_dv[c * DP + d] += e * grad.at(b, h, r0 + r)[d];
              own_dk[c * DP + d] += x * p.q.at(b, h, r0 + r)[d];
              own_dq[r * DP + d] += x * p.k.at(b, g, first + c)[d];
            }
          }
      }
    }
  });
  parallel(p.B * p.G * tiles, [&](int64_t i) {
    const int64_t t = i % tiles, g = i / tiles % p.G, b = i / tiles / p.G;
    for (int64_t c = t * C; c < std::min(p.K, t * C + C); ++c)
      for (int64_t d = 0; d < p.D; ++d) {
        T of_k = 0, of_v = 0;
        for (int64_t h = g * group; h < (g + 1) * group; ++h) {
          const int64_t from = ((b * p.H + h) * p.K + c) * DP + d;
          of_k += dk[from], of_v += dv[from];
        }
        into.k.at(b, g, c)[d] = of_k * p.scale, into.v.at(b, g, c)[d] = of_v;
      }
  });
  parallel(heads * visible.rows, [&](int64_t i) {
    const int64_t bh = i / visible.rows, r0 = i % visible.rows * R;
    for (int64_t r = r0; r < std::min(p.Q, r0 + R); ++r)
      for (int64_t d = 0; d < p.D; ++d) {
        T sum = 0;
        for (int64_t c = 0; c < chunks; ++c) sum += dq[((c * heads + bh) * p.Q + r) * DP + d];
        into.q.at(bh / p.H, bh % p.H, r)[d] = sum * p.scale;
      }
  });
  // In a fixed order, whoever computed them.
  const auto add_up = [&](T* to, int64_t rows, int64_t n, const auto* from, int64_t step, auto&& row_of) {
    std::vector<double> sums(rows * n);
    for (int64_t i = 0; i < chunks * heads; ++i)
      for (int64_t x = 0; x < n; ++x) sums[row_of(i % heads) * n + x] += from[i * step + x];
    for (int64_t x = 0; x < rows * n; ++x) to[x] = T(sums[x] / LOG2E);
  };
  const auto head_of = [&](int64_t bh) { return bh % p.H; };
  const auto none = [](int64_t) -> int64_t { return 0; };
  if (into.table && p.table_stride) add_up(into.table, p.H, length, dt.data(), length, head_of);
  else if (into.table) add_up(into.table, 1, length, dt.data(), length, none);
  if (!into.psi) return;
  add_up(into.psi, 1, length, of_psi.data(), length, none);
  if (p.warp.factor_stride) add_up(into.factor, p.B, p.Q, of_factor.data(), p.Q, [&](int64_t bh) { return bh / p.H; });
  else add_up(into.factor, 1, p.Q, of_factor.data(), p.Q, none);
  add_up(into.slopes, p.H, S, of_lines.data(), 2 * S, head_of);
  add_up(into.offsets, p.H, S, of_lines.data() + S, 2 * S, head_of);
}

}  // namespace lengthen
