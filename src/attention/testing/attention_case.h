// A complete attention call with its own memory, drawn from a CaseSpec.
//
// Scores are drawn so that skipping really happens: every query of a KV head points roughly one way, and every block of
// 16 keys is given a level along that way, most near 0 and some up to 12 nats above, in places that the newest tile
// knows nothing of.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/testing/case_spec.h"
#include "longhaul/attention.h"

namespace longhaul::conformance {

class Random;

/// Memory of one result, with a pattern in every byte that the call must not touch.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(GuardedTensor&&) = default;
  GuardedTensor& operator=(GuardedTensor&&) = default;
  GuardedTensor(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> stride);
  const TensorView& view() const { return view_; }
  void fill_zero();  ///< the elements, not what lies between them
  bool guards_intact() const;
  std::vector<uint8_t> elements() const;  ///< their bytes, for bitwise comparison
  double at(const std::vector<int64_t>& index) const;
  /// Everything, guards included: to be taken to another memory and back.
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<uint8_t> owned_;  // 1: the byte belongs to an element
  TensorView view_;
};

class AttentionCase {
 public:
  explicit AttentionCase(const CaseSpec& spec);
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;
  AttentionCase(AttentionCase&&) = default;

  /// Allocates the workspace the call needs and runs it on the CPU; results are cleared before.
  void run();
  void clear_results();
  /// Of the kernels it is to run on.
  Geometry geometry() const;

  const CaseSpec spec;
  AttentionArgs args;  ///< may be changed between runs
  GuardedTensor output, lse, counters, skip_mask;

  int64_t total_q = 0, total_kv = 0;
  std::vector<int64_t> q_lengths, kv_lengths;
  int heads_q() const { return spec.heads_kv * spec.group; }

  /// Element (request's token, KV head, component) of key or value, whatever the layout; for tests that plant values.
  float get(const TensorView& tensor, int request, int64_t token, int head, int c) const;
  void set(const TensorView& tensor, int request, int64_t token, int head, int c, float value);
  void set_query(int64_t token, int head, int c, float value);

 private:
  void draw_lengths(Random& random);
  int64_t gap(int64_t elements) const;
  /// Of the bytes between rows and of pages that nobody uses: a device must not even multiply them by 0.
  uint8_t unused() const { return spec.device == Device::cpu ? 0 : 0xff; }  // NaN in bfloat16 and float16
  void place_query(Random& random);
  void place_keys(Random& random);
  void draw_values(Random& random);
  void draw_options(Random& random);
  void plant_poison(Random& random);
  void make_results();
  int64_t kv_index(const TensorView& tensor, int request, int64_t token, int head, int c) const;

  std::vector<uint8_t> q_, kv_;
  std::vector<int32_t> cu_q_, cu_kv_, page_table_, paged_lengths_;
  std::vector<float> sinks_, q_scale_, k_scale_, v_scale_, lambdas_;
  std::vector<uint8_t> workspace_;
};

}  // namespace longhaul::conformance
