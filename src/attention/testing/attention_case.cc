#include "attention/testing/attention_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "attention/mask_layout.h"
#include "attention/params.h"
#include "attention/sm90/decode/decode.h"
#include "attention/sm90/prefill/prefill.h"
#include "attention/testing/random.h"
#include "attention/testing/workspace.h"
#include "attention/tile_plan.h"

namespace longhaul::conformance {
namespace {

TensorView make_view(void* data, DType dtype, std::initializer_list<int64_t> shape,
                     std::initializer_list<int64_t> stride) {
  return TensorView(data, dtype, shape, stride);
}

}  // namespace

AttentionCase::AttentionCase(const CaseSpec& which) : spec(which) {
  // Every step has its own stream: the same seed gives the same values in any layout.
  Random streams(spec.seed);
  Random lengths(streams.bits()), places(streams.bits()), options(streams.bits()), values(streams.bits()),
      poison(streams.bits());
  draw_lengths(lengths);
  place_query(places);
  place_keys(places);
  draw_options(options);
  draw_values(values);
  plant_poison(poison);
  make_results();
}

void AttentionCase::draw_lengths(Random& random) {
  const bool decode = spec.phase == Phase::decode;
  // In decode up to 5, and no more rows than the Hopper kernels hold.
  const int64_t most = spec.device == Device::cuda ? std::min(5, sm90::kDecodeMaxRows / spec.group) : 5;
  const auto queries = [&](int64_t low, int64_t high) {
    return decode ? random.integer(std::min(low, most), std::min(high, most)) : random.integer(low, high);
  };
  const auto add = [&](int64_t q, int64_t kv) {
    q_lengths.push_back(q);
    kv_lengths.push_back(kv);
  };
  switch (spec.lengths) {
    case Lengths::single: {
      const int64_t n = random.integer(65, 200);
      add(decode ? 1 : n, decode ? n * 3 : n);
      break;
    }
    case Lengths::ragged: {  // lengths 0 and 1 among odd ones
      add(queries(1, 70), 131);
      add(0, 17);
      add(1, 1);
      const int64_t n = random.integer(30, 90);
      add(decode ? 2 : n, n);
      add(0, 0);
      add(1, random.integer(1, 80));
      break;
    }
    case Lengths::chunked:  // a chunk on top of a cache
      add(queries(17, 80), random.integer(150, 330));
      add(queries(2, 40), random.integer(64, 128));
      break;
    case Lengths::extreme:
      add(1, 1);
      add(queries(3, 20), random.integer(350, 500));
      add(queries(1, 2), 16);
      break;
    case Lengths::tiles:  // many tiles of any kernel, whole ones and others
      add(queries(384, 600), 640 + random.integer(0, 1) * random.integer(1, 127));
      add(queries(128, 128), 256);
      break;
    case Lengths::more_queries:  // rows that see nothing
      add(queries(5, 60), 3);
      add(queries(4, 5), 0);
      add(queries(20, 40), random.integer(18, 70));
      break;
  }
  if (spec.long_keys > 0)
    *std::max_element(kv_lengths.begin(), kv_lengths.end()) = spec.long_keys + random.integer(0, 99);
  cu_q_ = {0};
  cu_kv_ = {0};
  for (size_t b = 0; b < q_lengths.size(); ++b) {
    cu_q_.push_back(static_cast<int32_t>(total_q += q_lengths[b]));
    cu_kv_.push_back(static_cast<int32_t>(total_kv += kv_lengths[b]));
  }
  args.cu_seqlens_q = TensorView(cu_q_.data(), DType::i32, {static_cast<int64_t>(cu_q_.size())});
}

// Odd gaps between rows; on a device multiples of 16 bytes.
int64_t AttentionCase::gap(int64_t elements) const { return spec.device == Device::cpu ? elements : 8 * elements; }

void AttentionCase::place_query(Random& random) {
  const int64_t size = static_cast<int64_t>(dtype_size(spec.query));
  const int64_t head = spec.d + (spec.layout == Layout::padded ? gap(random.integer(1, 5)) : 0);
  const int64_t token = head * heads_q() + (spec.layout == Layout::padded ? gap(random.integer(0, 7)) : 0);
  q_.resize((total_q * token + 64) * size, unused());
  args.query = make_view(q_.data(), spec.query, {total_q, heads_q(), spec.d}, {token, head, 1});
}

void AttentionCase::place_keys(Random& random) {
  const int64_t size = static_cast<int64_t>(dtype_size(spec.kv)), h = spec.heads_kv, d = spec.d, dv = spec.dv();
  const int64_t batch = static_cast<int64_t>(q_lengths.size());
  if (!spec.paged()) {
    const int64_t pad = spec.layout == Layout::padded ? gap(random.integer(1, 9)) : 0;
    const bool heads_first = spec.layout == Layout::heads_first;
    const auto place = [&](int64_t at, int64_t n) {
      const int64_t head = heads_first ? total_kv * n : n + pad, token = heads_first ? n : (n + pad) * h + pad;
      return make_view(kv_.data() + at * size, spec.kv, {total_kv, h, n}, {token, head, 1});
    };
    const int64_t span = (total_kv + 1) * ((d + pad) * h + pad) + 64;
    kv_.resize(2 * span * size, unused());
    args.key = place(0, d);
    args.value = place(span, dv);
    args.cu_seqlens_kv = TensorView(cu_kv_.data(), DType::i32, {batch + 1});
    return;
  }
  // Pages in random order, some of them unused, and a table wider than any request needs.
  const int64_t page = spec.page_size,
                max_pages = (*std::max_element(kv_lengths.begin(), kv_lengths.end()) + page - 1) / page + 1;
  int64_t used = 0;
  for (int64_t length : kv_lengths) used += (length + page - 1) / page;
  const int64_t pages = used + 2;
  std::vector<int32_t> shuffled(pages);
  std::iota(shuffled.begin(), shuffled.end(), 0);
  for (int64_t i = pages; i > 1; --i) std::swap(shuffled[i - 1], shuffled[random.integer(0, i - 1)]);
  page_table_.assign(batch * max_pages, -1);  // entries past the length are never read
  int64_t next = 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i * page < kv_lengths[b]; ++i) page_table_[b * max_pages + i] = shuffled[next++];
    paged_lengths_.push_back(static_cast<int32_t>(kv_lengths[b]));
  }
  // The pool interleaves a page's keys and values, with gaps of odd size between rows.
  const int64_t pad = spec.layout == Layout::paged_pool ? gap(random.integer(1, 7)) : 0;
  const bool hnd = spec.layout == Layout::paged_hnd;
  const int64_t k_page = page * h * (d + pad), v_page = page * h * (dv + pad), stride = k_page + v_page + pad;
  kv_.resize((pages * stride + 64) * size, unused());
  const auto place = [&](int64_t at, int64_t n) {
    const int64_t token = hnd ? n : h * (n + pad), head = hnd ? page * n : n + pad;
    return make_view(kv_.data() + at * size, spec.kv, {pages, page, h, n}, {stride, token, head, 1});
  };
  args.key = place(0, d);
  args.value = place(k_page, dv);
  args.page_table = TensorView(page_table_.data(), DType::i32, {batch, max_pages});
  args.kv_lengths = TensorView(paged_lengths_.data(), DType::i32, {batch});
}

void AttentionCase::draw_options(Random& random) {
  const int64_t batch = static_cast<int64_t>(q_lengths.size());
  args.causal = spec.masking == Masking::causal || spec.masking == Masking::causal_window;
  const bool window = spec.masking == Masking::causal_window || spec.masking == Masking::full_window;
  args.window_left = window ? random.pick<int64_t>({0, 15, 40, 100}) : -1;
  args.soft_cap = spec.soft_cap ? static_cast<float>(random.uniform(10, 40)) : 0.0F;
  args.softmax_scale = spec.own_scale ? static_cast<float>(random.uniform(0.7, 1.3) / std::sqrt(spec.d)) : 0.0F;
  args.rule = spec.rule;
  args.threads = spec.threads;
  args.batch_invariant = spec.batch_invariant;
  if (spec.sinks) {
    for (int h = 0; h < heads_q(); ++h) sinks_.push_back(static_cast<float>(random.uniform(-2, 12)));
    sinks_[0] = -std::numeric_limits<float>::infinity();
    args.sinks = TensorView(sinks_.data(), DType::f32, {heads_q()});
  }
  const auto scale = [&](DType dtype, int heads, std::vector<float>& data, TensorView& view) {
    if (dtype != DType::f8e4m3 || spec.scales == Scales::none) return;
    for (int h = 0; h < (spec.scales == Scales::head ? heads : 1); ++h)
      data.push_back(static_cast<float>(random.uniform(0.3, 2)));
    view = TensorView(data.data(), DType::f32, {static_cast<int64_t>(data.size())});
  };
  scale(spec.query, heads_q(), q_scale_, args.query_scale);
  scale(spec.kv, spec.heads_kv, k_scale_, args.key_scale);
  scale(spec.kv, spec.heads_kv, v_scale_, args.value_scale);
  switch (spec.lambda) {
    case Lambdas::none:
      break;
    case Lambdas::zero:
      args.lambda = Lambda::scalar(0);
      break;
    case Lambdas::low:
      args.lambda = Lambda::scalar(static_cast<float>(random.uniform(0.0005, 0.01)));
      break;
    case Lambdas::middle:
      args.lambda = Lambda::scalar(static_cast<float>(random.uniform(0.03, 0.3)));
      break;
    case Lambdas::one:
      args.lambda = Lambda::scalar(1);
      break;
    case Lambdas::per_head:
      for (int64_t i = 0; i < batch * heads_q(); ++i)
        lambdas_.push_back(static_cast<float>(random.pick({0.0, 0.002, 0.05, 0.3})));
      args.lambda = Lambda::per_head(TensorView(lambdas_.data(), DType::f32, {batch, heads_q()}));
      break;
    case Lambdas::per_request:
      for (int64_t i = 0; i < batch; ++i) lambdas_.push_back(static_cast<float>(random.pick({0.001, 0.05, 0.4})));
      args.lambda = Lambda::per_head(make_view(lambdas_.data(), DType::f32, {batch, heads_q()}, {1, 0}));
      break;
  }
}

void AttentionCase::make_results() {
  const int64_t h = heads_q(), dv = spec.dv(), voting = spec.phase == Phase::decode ? spec.heads_kv : h,
                pad = spec.padded_output ? 3 : 0, wide = gap(pad);
  output = GuardedTensor(spec.output, {total_q, h, dv}, {h * (dv + wide) + 2 * wide, dv + wide, 1});
  lse = spec.padded_output ? GuardedTensor(DType::f32, {h, total_q}, {2, 2 * h + 1})
                           : GuardedTensor(DType::f32, {h, total_q}, {total_q, 1});
  counters = GuardedTensor(DType::i64, {voting, 4}, {4 + pad, 1});
  args.output = output.view();
  args.lse = lse.view();
  args.counters = counters.view();
  const SkipMaskShape shape = mask_shape(make_input_params(args, spec.phase), spec.phase, geometry());
  skip_mask = GuardedTensor(DType::u8, {shape.voting_heads, shape.groups, shape.blocks},
                            {shape.groups * shape.blocks, shape.blocks, 1});
  args.skip_mask = skip_mask.view();
}

Geometry AttentionCase::geometry() const {
  if (spec.device == Device::cuda) return spec.phase == Phase::decode ? kSm90Decode : kSm90Prefill;
  return spec.phase == Phase::decode ? kCpuDecode : kCpuPrefill;
}

void AttentionCase::clear_results() {
  for (GuardedTensor* result : {&output, &lse, &counters, &skip_mask}) result->fill_zero();
}

void AttentionCase::run() {
  clear_results();
  give_workspace(args, spec.phase, workspace_);
  attention(args, spec.phase);
}

int64_t AttentionCase::kv_index(const TensorView& tensor, int request, int64_t token, int head, int c) const {
  if (!spec.paged()) return (cu_kv_[request] + token) * tensor.stride[0] + head * tensor.stride[1] + c;
  const int64_t max_pages = args.page_table.shape[1];
  const int64_t page = page_table_[request * max_pages + token / spec.page_size];
  return page * tensor.stride[0] + token % spec.page_size * tensor.stride[1] + head * tensor.stride[2] + c;
}

float AttentionCase::get(const TensorView& tensor, int request, int64_t token, int head, int c) const {
  return load_as_float(tensor.data, tensor.dtype, kv_index(tensor, request, token, head, c));
}
void AttentionCase::set(const TensorView& tensor, int request, int64_t token, int head, int c, float value) {
  store_from_float(tensor.data, tensor.dtype, kv_index(tensor, request, token, head, c), value);
}
void AttentionCase::set_query(int64_t token, int head, int c, float value) {
  store_from_float(args.query.data, args.query.dtype, token * args.query.stride[0] + head * args.query.stride[1] + c,
                   value);
}

}  // namespace longhaul::conformance
