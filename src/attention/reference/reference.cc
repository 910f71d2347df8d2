#include "attention/reference/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "attention/mask_layout.h"
#include "attention/params_cuda.h"
#include "attention/reference/dense_math.h"
#include "attention/reference/group.h"
#include "core/thread_pool.h"
#include "longhaul/error.h"

namespace longhaul {
namespace {

using namespace reference;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Softmax of one row over the keys its group kept.
struct RowSoftmax {
  double max = -kInfinity;  // of the kept scores and the sink
  double mass = 0;          // sum of exp(score - max), the sink included
  bool nothing = false;     // no key with a score above -inf: output 0, lse -inf
};

template <class Keeps>
RowSoftmax softmax_of(const Group& group, size_t r, double sink, const Keeps& keeps) {
  const KeyRange keys = group.rows()[r].keys;
  RowSoftmax result;
  for (int64_t j = keys.begin; j < keys.end; ++j)
    if (keeps(j)) result.max = join_max(result.max, group.score(r, j));
  result.nothing = result.max == -kInfinity;
  if (result.nothing) return result;
  result.max = join_max(result.max, sink);
  for (int64_t j = keys.begin; j < keys.end; ++j)
    if (keeps(j)) result.mass += std::exp(group.score(r, j) - result.max);
  result.mass += std::exp(sink - result.max);
  return result;
}

class Run {
 public:
  Run(const AttentionArgs& args, const ReferenceOptions& options)
      : p_(make_input_params(args, options.phase)), options_(options) {
    require_cpu(p_, "the oracle");
    result_.mask_shape = mask_shape(p_, options.phase, options.geometry);
    const SkipMaskShape& shape = result_.mask_shape;
    result_.skip_mask.assign(shape.voting_heads * shape.groups * shape.blocks, 0);
    result_.counters.assign(shape.voting_heads * 4, 0);
    const int64_t rows = p_.total_q * p_.heads_q;
    result_.output.assign(rows * p_.dv, 0.0);
    result_.lse.assign(rows, -kInfinity);
    if (options.measure_dropped_mass) result_.dropped_mass.assign(rows, 0.0);
    if (options.measure_sizes) result_.score_size.assign(rows, 0.0);
    if (options.measure_sizes) result_.abs_output.assign(rows * p_.dv, 0.0);
  }

  ReferenceResult run() {
    const std::vector<GroupPlace> places = list_groups(p_, options_);
    std::atomic<size_t> next{0};
    run_on_workers(default_threads(), [&](int) {
      for (size_t i = next++; i < places.size(); i = next++) {
        run_group(places[i]);
        tell(places.size());
      }
    });
    return std::move(result_);
  }

 private:
  void tell(size_t total) {
    if (!options_.progress) return;
    const std::lock_guard lock(telling_);
    options_.progress(++done_, static_cast<int64_t>(total));
  }

  void run_group(const GroupPlace& place) {
    Group group(p_, options_, place);
    if (group.keys().empty()) return;
    group.compute_scores();
    group.decide();
    record(group, place);
    write_rows(group, place.request);
  }

  // Counters and mask.
  void record(const Group& group, const GroupPlace& place) {
    const int64_t block_keys = options_.geometry.block_keys;
    int64_t visible = 0, skipped = 0, value_bytes = 0;
    for (int64_t block = group.keys().begin / block_keys; block * block_keys < group.keys().end; ++block) {
      const KeyRange keys = intersect(group.keys(), {block * block_keys, (block + 1) * block_keys});
      int64_t scores = 0;
      for (const Row& row : group.rows()) {
        const KeyRange seen = intersect(row.keys, keys);
        scores += seen.end - seen.begin;
      }
      visible += scores;
      const bool drop = group.skipped(block);
      const SkipMaskShape& shape = result_.mask_shape;
      result_.skip_mask[(place.voting_head * shape.groups + place.mask_group) * shape.blocks + block] = drop ? 2 : 1;
      if (!drop) continue;
      skipped += scores;
      value_bytes += (keys.end - keys.begin) * p_.dv * static_cast<int64_t>(dtype_size(p_.kv_dtype));
    }
    int64_t* counters = &result_.counters[place.voting_head * 4];
    std::atomic_ref(counters[0]) += visible;
    std::atomic_ref(counters[1]) += skipped;
    if (options_.phase == Phase::decode) std::atomic_ref(counters[2]) += value_bytes;
    std::atomic_ref(result_.ambiguous) += group.ambiguous();
  }

  void write_rows(const Group& group, int request) {
    const int64_t block_keys = options_.geometry.block_keys;
    const auto kept = [&](int64_t key) { return !group.skipped(key / block_keys); };
    std::vector<RowSoftmax> softmax;
    for (size_t r = 0; r < group.rows().size(); ++r) {
      const Row& row = group.rows()[r];
      const double sink = p_.sinks != nullptr ? static_cast<double>(p_.sinks[row.head]) : -kInfinity;
      softmax.push_back(softmax_of(group, r, sink, kept));
      const int64_t at = row.head * p_.total_q + row.token;
      if (!softmax[r].nothing) result_.lse[at] = softmax[r].max + std::log(softmax[r].mass);
      if (options_.measure_dropped_mass) {
        result_.dropped_mass[at] = dropped_mass(group, r, softmax_of(group, r, sink, [](int64_t) { return true; }));
      }
      if (options_.measure_sizes) result_.score_size[at] = row.size;
    }
    std::vector<double> value(p_.dv);
    for (int64_t key = group.keys().begin; key < group.keys().end; ++key) {
      if (!kept(key)) continue;
      load_row(p_.v, p_.kv_dtype, p_.v_offset(request, key, group.head_kv()), p_.dv, value.data(), 1);
      for (size_t r = 0; r < group.rows().size(); ++r)
        add_value(group, r, key, softmax[r], value.data(), result_.output);
      if (!options_.measure_sizes) continue;
      for (double& v : value) v = std::fabs(v);
      for (size_t r = 0; r < group.rows().size(); ++r)
        add_value(group, r, key, softmax[r], value.data(), result_.abs_output);
    }
  }

  void add_value(const Group& group, size_t r, int64_t key, const RowSoftmax& softmax, const double* value,
                 std::vector<double>& output) {
    const Row& row = group.rows()[r];
    if (key < row.keys.begin || key >= row.keys.end || softmax.nothing) return;
    const double weight = std::exp(group.score(r, key) - softmax.max) / softmax.mass * p_.v_scale_of(group.head_kv());
    add_scaled(weight, value, p_.dv, &output[(row.token * p_.heads_q + row.head) * p_.dv]);
  }

  double dropped_mass(const Group& group, size_t r, const RowSoftmax& dense) const {
    const KeyRange keys = group.rows()[r].keys;
    double dropped = 0;
    for (int64_t j = keys.begin; j < keys.end; ++j)
      if (group.skipped(j / options_.geometry.block_keys)) dropped += std::exp(group.score(r, j) - dense.max);
    return dense.nothing ? 0 : dropped / dense.mass;
  }

  AttentionParams p_;
  const ReferenceOptions& options_;
  ReferenceResult result_;
  std::mutex telling_;
  int64_t done_ = 0;
};

}  // namespace

ReferenceResult reference_attention(const AttentionArgs& args, const ReferenceOptions& options) {
  check_options(options);
  return Run(args, options).run();
}

}  // namespace longhaul
