// The kernel as PyTorch operators, for float32 and float64 on a CPU.
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include "kernel.h"

namespace {
using at::Tensor;
using lengthen::Gradients;
using lengthen::Problem;
using lengthen::Rows;

constexpr int64_t FEW = 6;  // queries up to which packing keys costs more than it saves

// Items are taken one by one, so that cheap and dear ones balance; what an item computes does not depend on who takes it.
struct OverThreads {
  template <class F> void operator()(int64_t items, F&& work) const {
    std::atomic<int64_t> next{0};
    const int64_t threads = std::min<int64_t>(at::get_num_threads(), items);
    at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
      const lengthen::FlushDenormals scope;
      for (int64_t i; (i = next++) < items;) work(i);
    });
  }
};

template <class T, class X> Rows<T> rows(X& t) {
  return {t.template data_ptr<std::remove_const_t<T>>(), t.stride(0), t.stride(1), t.stride(2)};
}

// psi, factor, slopes, offsets, top, edges; or nothing
template <class T> lengthen::Warp<T> warp_of(at::TensorList x) {
  if (x.empty()) return {};
  return {x[0].data_ptr<T>(), x[1].data_ptr<T>(), x[2].data_ptr<T>(), x[3].data_ptr<T>(), x[4].data_ptr<T>(), x[5].data_ptr<int32_t>(),
          x[1].size(0) > 1 ? x[1].size(1) : 0, x[5].size(0) > 1 ? x[5].stride(0) : 0, x[5].size(2)};
}

template <class T>
Problem<T> problem(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& table, at::TensorList warp, const Tensor& seen,
                   double scale) {
  Problem<T> p{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), rows<const T>(q), rows<const T>(k), rows<const T>(v), T(scale)};
  if (table) p.table = table->data_ptr<T>(), p.table_stride = table->size(0) > 1 ? table->stride(0) : 0;
  p.seen = seen.data_ptr<int32_t>(), p.seen_stride = seen.size(0) > 1 ? seen.stride(0) : 0, p.n = seen.size(2);
  p.warp = warp_of<T>(warp);
  return p;
}

void check_warp(const Tensor& q, const Tensor& k, at::TensorList x) {
  TORCH_CHECK(x.empty() || x.size() == 6, "warp: psi, factor, slopes, offsets, top and edges, or nothing");
  if (x.empty()) return;
  for (const Tensor& t : x.slice(0, 5)) TORCH_CHECK(t.is_contiguous() && t.scalar_type() == q.scalar_type(), "warp: contiguous, of the type of q");
  const int64_t rows = x[1].size(0), S = x[5].size(2);
  TORCH_CHECK(x[0].numel() == q.size(2) + k.size(2) - 1 + 16, "psi: [Q + K - 1 + 16]");
  TORCH_CHECK((rows == 1 || rows == q.size(0)) && x[1].size(1) == q.size(2), "factor: [1 or B, Q]");
  TORCH_CHECK(x[2].numel() == q.size(1) * (S + 1) && x[3].numel() == x[2].numel() && x[4].numel() == q.size(1), "lines: [H, S + 1]; top: [H]");
  TORCH_CHECK(x[5].is_contiguous() && x[5].scalar_type() == at::kInt && x[5].size(0) == rows && x[5].size(1) == q.size(2), "edges: int32 [1 or B, Q, S]");
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& table, at::TensorList warp, const Tensor& seen) {
  check_warp(q, k, warp);
  const auto channels_adjoin = [](const Tensor& t) { return t.dim() == 4 && (t.stride(3) == 1 || t.size(3) == 1); };
  TORCH_CHECK(channels_adjoin(q) && channels_adjoin(k) && channels_adjoin(v), "q, k, v: [B, H, T, D] with adjoining channels");
  TORCH_CHECK(q.numel() && k.numel(), "q, k, v: at least one row, head, token and channel");
  TORCH_CHECK(k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(3) == k.size(3) && q.size(1) % k.size(1) == 0, "q, k, v do not fit");
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(), "q, k, v differ in type");
  TORCH_CHECK(seen.scalar_type() == at::kInt && seen.is_contiguous() && seen.dim() == 4 && seen.size(1) == q.size(2) && seen.size(3) == 2 &&
              (seen.size(0) == 1 || seen.size(0) == q.size(0)), "intervals: contiguous int32 [1 or B, Q, n, 2]");
  TORCH_CHECK(!table || (table->is_contiguous() && table->scalar_type() == q.scalar_type() && table->dim() == 2 &&
              table->size(1) == q.size(2) + k.size(2) - 1 && (table->size(0) == 1 || table->size(0) == q.size(1))), "table: contiguous [1 or H, Q + K - 1]");
}

Tensor tokens_first(const Tensor& like, int64_t heads, int64_t tokens) {  // [B, H, T, D] that lies as [B, T, H, D]
  return at::empty({like.size(0), tokens, heads, like.size(3)}, like.options()).transpose(1, 2);
}

std::tuple<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& table, at::TensorList warp,
                                   const Tensor& seen, double scale) {
  check(q, k, v, table, warp, seen);
  Tensor out = tokens_first(q, q.size(1), q.size(2)), lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "lengthen::forward", [&] {
    const auto p = problem<scalar_t>(q, k, v, table, warp, seen, scale);
    const auto to = rows<scalar_t>(out);
    if (q.size(2) <= FEW) lengthen::forward_few(p, to, lse.data_ptr<scalar_t>(), OverThreads{});
    else lengthen::forward(p, to, lse.data_ptr<scalar_t>(), OverThreads{});
  });
  return {out, lse};
}

using Found = std::tuple<Tensor, Tensor, Tensor, Tensor, std::vector<Tensor>>;

Found backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
               const std::optional<Tensor>& table, at::TensorList warp, const Tensor& seen, double scale, bool of_table, bool of_warp) {
  check(q, k, v, table, warp, seen);
  Tensor dq = tokens_first(q, q.size(1), q.size(2)), dk = tokens_first(k, k.size(1), k.size(2)), dv = tokens_first(k, k.size(1), k.size(2));
  Tensor dt = of_table ? at::empty_like(*table) : at::empty({0}, q.options());
  std::vector<Tensor> dw;
  if (of_warp) for (const Tensor& t : warp.slice(0, 4)) dw.push_back(at::zeros_like(t));
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "lengthen::backward", [&] {
    using T = scalar_t;
    Gradients<T> into{rows<T>(dq), rows<T>(dk), rows<T>(dv), of_table ? dt.data_ptr<T>() : nullptr};
    if (of_warp) into.psi = dw[0].data_ptr<T>(), into.factor = dw[1].data_ptr<T>(), into.slopes = dw[2].data_ptr<T>(), into.offsets = dw[3].data_ptr<T>();
    lengthen::backward(problem<T>(q, k, v, table, warp, seen, scale), rows<const T>(out), rows<const T>(grad), lse.data_ptr<T>(), into,
                       at::get_num_threads(), OverThreads{});
  });
  return {dq, dk, dv, dt, dw};
}

int64_t vector_bytes() { return lengthen::VECTOR_BYTES; }
}  // namespace

TORCH_LIBRARY(lengthen, m) {
  m.def("attention(Tensor q, Tensor k, Tensor v, Tensor? table, Tensor[] warp, Tensor seen, float scale) -> (Tensor, Tensor)");
  m.def("attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? table, Tensor[] warp, "
        "Tensor seen, float scale, bool of_table, bool of_warp) -> (Tensor, Tensor, Tensor, Tensor, Tensor[])");
  m.def("vector_bytes() -> int", &vector_bytes);
}
// Shapes alone, for tracing.
TORCH_LIBRARY_IMPL(lengthen, Meta, m) {
  m.impl("attention", [](const Tensor& q, const Tensor&, const Tensor&, const std::optional<Tensor>&, at::TensorList, const Tensor&,
                         double) {
    return std::make_tuple(tokens_first(q, q.size(1), q.size(2)), at::empty({q.size(0), q.size(1), q.size(2)}, q.options()));
  });
  m.impl("attention_backward", [](const Tensor&, const Tensor& q, const Tensor& k, const Tensor&, const Tensor&, const Tensor&,
                                  const std::optional<Tensor>& table, at::TensorList warp, const Tensor&, double, bool of_table,
                                  bool of_warp) -> Found {
    const auto like = [](const Tensor& t) { return tokens_first(t, t.size(1), t.size(2)); };
    std::vector<Tensor> dw;
    if (of_warp) for (const Tensor& t : warp.slice(0, 4)) dw.push_back(at::empty_like(t));
    return {like(q), like(k), like(k), of_table ? at::empty_like(*table) : at::empty({0}, q.options()), dw};
  });
}
TORCH_LIBRARY_IMPL(lengthen, CPU, m) {
  m.impl("attention", &forward);
  m.impl("attention_backward", &backward);
}
