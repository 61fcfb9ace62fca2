// The kernel under a sanitizer: odd shapes, intervals, a table, a warp, threads that take items from one counter.
#include <cstdio>
#include <random>
#include <thread>

#include "kernel.h"

using namespace lengthen;

struct Threads {
  template <class F> void operator()(int64_t items, F&& work) const {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> pool;
    for (int t = 0; t < 4; ++t) pool.emplace_back([&] {
      const FlushDenormals scope;
      for (int64_t i; (i = next++) < items;) work(i);
    });
    for (auto& t : pool) t.join();
  }
};

template <class T> void run(int64_t B, int64_t H, int64_t G, int64_t Q, int64_t K, int64_t D, bool biased, int64_t window) {
  std::mt19937 random(Q * 131 + K);
  std::normal_distribution<T> normal;
  const auto fill = [&](int64_t n) { std::vector<T> x(n); for (T& v : x) v = normal(random); return x; };
  auto q = fill(B * H * Q * D), k = fill(B * G * K * D), v = fill(B * G * K * D), g = fill(B * H * Q * D), table = fill(H * (Q + K - 1));
  std::vector<T> out(q.size()), lse(B * H * Q), dq(q.size()), dk(k.size()), dv(v.size()), dt(table.size());
  std::vector<int32_t> seen(Q * 2 * 2);
  for (int64_t r = 0; r < Q; ++r) {
    const int32_t last = int32_t(r + K - Q + 1);
    seen[r * 4] = std::max<int32_t>(0, last - int32_t(window)), seen[r * 4 + 1] = last;
    seen[r * 4 + 2] = 0, seen[r * 4 + 3] = std::min<int32_t>(last, 3);
  }
  const auto rows = [&](auto& x, int64_t heads, int64_t tokens) { return Rows<T>{x.data(), heads * tokens * D, tokens * D, D}; };
  const auto reads = [&](auto& x, int64_t heads, int64_t tokens) { return Rows<const T>{x.data(), heads * tokens * D, tokens * D, D}; };
  Problem<T> p{B, H, G, Q, K, D, reads(q, H, Q), reads(k, G, K), reads(v, G, K), T(1) / std::sqrt(T(D))};
  if (biased) p.table = table.data(), p.table_stride = Q + K - 1;
  const int64_t S = 3;
  std::vector<T> psi(Q + K - 1 + 16), factor(Q, T(0.25)), slopes = fill(H * (S + 1)), offsets = fill(H * (S + 1)), tops(H, T(9));
  std::vector<int32_t> edges(Q * S);
  for (int64_t x = 0; x < Q + K - 1; ++x) psi[x] = std::log1p(T(std::abs(K - 1 - x)));
  for (int64_t r = 0; r < Q; ++r)
    for (int64_t s = 0; s < S; ++s) edges[r * S + s] = int32_t(r + K - Q - (s + 1) * 20);
  if (K % 2) p.warp = {psi.data(), factor.data(), slopes.data(), offsets.data(), tops.data(), edges.data(), 0, 0, S};
  std::vector<T> dpsi(Q + K - 1), dfactor(Q), dslopes(H * (S + 1)), doffsets(H * (S + 1));
  p.seen = seen.data(), p.n = 2;
  const Threads threads;
  if (Q <= 6) forward_few(p, rows(out, H, Q), lse.data(), threads);
  forward(p, rows(out, H, Q), lse.data(), threads);
  Gradients<T> into{rows(dq, H, Q), rows(dk, G, K), rows(dv, G, K), biased ? dt.data() : nullptr};
  if (K % 2) into.psi = dpsi.data(), into.factor = dfactor.data(), into.slopes = dslopes.data(), into.offsets = doffsets.data();
  backward(p, reads(out, H, Q), reads(g, H, Q), lse.data(), into, 4, threads);
}

int main() {
  for (int64_t D : {1, 8, 24, 33, 80})
    for (auto [Q, K] : {std::pair<int64_t, int64_t>{1, 1}, {1, 577}, {7, 50}, {63, 63}, {65, 193}, {200, 400}}) {
      run<float>(2, 4, 2, Q, K, D, D != 8, K / 3 + 1);
      run<double>(1, 3, 1, Q, K, D, D != 24, K);
    }
  std::puts("clean");
}
