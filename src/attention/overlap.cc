#include "attention/overlap.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace longhaul {
namespace {

// A view as rows of adjacent bytes: row (i, j, ...) begins at base + i * step[0] + j * step[1] + ...; the widest step
// first.
struct Rows {
  int64_t base, bytes;
  int dims = 0;
  std::array<int64_t, TensorView::kMaxRank> count{}, step{};

  explicit Rows(const TensorView& view)
      : base(static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data))),
        bytes(static_cast<int64_t>(dtype_size(view.dtype))) {
    const int64_t element = bytes;
    int last = view.rank - 1;
    if (view.stride[last] == 1 || view.shape[last] == 1) bytes *= view.shape[last--];
    for (int i = 0; i <= last; ++i) {
      if (view.shape[i] == 1) continue;
      int at = dims++;
      for (; at > 0 && step[at - 1] < view.stride[i] * element; --at) {
        step[at] = step[at - 1];
        count[at] = count[at - 1];
      }
      step[at] = view.stride[i] * element;
      count[at] = view.shape[i];
    }
  }

  /// No dimension is left. The bound is one that g++ sees when it unrolls the recursion.
  bool single(int dim) const { return dim >= TensorView::kMaxRank || dim >= dims; }

  /// Bytes from the first to the last byte of the rows that dimensions `dim` and up make.
  int64_t span(int dim) const {
    int64_t sum = bytes;
    for (int i = dim; !single(i); ++i) sum += (count[i] - 1) * step[i];
    return sum;
  }
};

/// Whether a row of dimensions `dim` and up, the first at `base`, meets the bytes [begin, end).
bool meets(const Rows& rows, int dim, int64_t base, int64_t begin, int64_t end) {
  const int64_t span = rows.span(dim);
  if (base >= end || base + span <= begin) return false;
  if (rows.single(dim)) return true;
  const int64_t step = rows.step[dim], inner = rows.span(dim + 1);
  // base + i * step < end and base + i * step + inner > begin
  const int64_t first = begin - base >= inner ? (begin - base - inner) / step + 1 : 0;
  const int64_t last = std::min(rows.count[dim] - 1, (end - 1 - base) / step);
  for (int64_t i = first; i <= last; ++i)
    if (meets(rows, dim + 1, base + i * step, begin, end)) return true;
  return false;
}

/// Whether any row of `input` from dimension `dim` on, the first at `base`, meets a row of `result`.
bool any_meets(const Rows& input, int dim, int64_t base, const Rows& result) {
  const int64_t span = input.span(dim);
  if (base >= result.base + result.span(0) || base + span <= result.base) return false;
  if (input.single(dim)) return meets(result, 0, result.base, base, base + input.bytes);
  for (int64_t i = 0; i < input.count[dim]; ++i)
    if (any_meets(input, dim + 1, base + i * input.step[dim], result)) return true;
  return false;
}

}  // namespace

bool overlap(const TensorView& result, const TensorView& input) {
  if (!result.given() || !input.given() || result.size() == 0 || input.size() == 0) return false;
  const Rows rows(input);
  return any_meets(rows, 0, rows.base, Rows(result));
}

}  // namespace longhaul
