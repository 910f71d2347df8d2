// One point of the attention contract: which options a test case uses. Values are drawn from a seed by AttentionCase.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/attention.h"

namespace longhaul::conformance {

enum class Lengths { single, ragged, chunked, extreme, more_queries, tiles };
enum class Layout { tokens_first, heads_first, padded, paged_nhd, paged_hnd, paged_pool };
enum class Masking { causal, full, causal_window, full_window };
enum class Scales { none, tensor, head };
enum class Lambdas { none, zero, low, middle, one, per_head, per_request };
enum class Poison { none, query, key, value };

struct CaseSpec {
  uint64_t seed = 1;
  Device device = Device::cpu;  // where it is to run: gaps are of 16 bytes then, and hold NaN
  Phase phase = Phase::prefill;
  bool batch_invariant = false;
  DType query = DType::f32, kv = DType::f32, output = DType::f32;
  Scales scales = Scales::none;  // of fp8 inputs
  int d = 64;                    // 192: values have 128
  int heads_kv = 1, group = 1;   // query heads per KV head
  Masking masking = Masking::causal;
  bool soft_cap = false, sinks = false, own_scale = false;  // own_scale: a softmax_scale other than 1/sqrt(d)
  Layout layout = Layout::tokens_first;
  int page_size = 64;  // paged layouts
  Lengths lengths = Lengths::single;
  Lambdas lambda = Lambdas::none;
  SkipRule rule = SkipRule::max;
  int threads = 1;
  bool padded_output = false;  // output, lse and counters with gaps, which must stay untouched
  Poison poison = Poison::none;
  int64_t long_keys = 0;  // > 0: keys of the longest request (decode splits need thousands)

  bool paged() const { return layout >= Layout::paged_nhd; }
  int dv() const { return d == 192 ? 128 : d; }
  std::string describe() const;  ///< one line
};

/// Every pair of values of two options of the contract appears in at least one of the specs (a pairwise covering
/// array). Options that only matter together are one option there, so that no pair is covered in name only. On a CUDA
/// device the options are those that its kernels support.
std::vector<CaseSpec> pairwise_specs(uint64_t seed, Device device = Device::cpu);

/// All options at random.
CaseSpec random_spec(uint64_t seed);

}  // namespace longhaul::conformance
